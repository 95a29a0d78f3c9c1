// See pending_row.h.

#include "message/pending_row.h"

#include "commit/entries.h"
#include "commit/taken_keys.h"
#include "server/stop_point.h"
#include "commit/transaction.h"

namespace outbox {

namespace {

// The row with its values and their tuple behind it.
PendingRow *
copy_of(TupleDesc desc, TupleTableSlot *slot, MemoryContext context)
{
	HeapTupleData tuple = *ExecFetchSlotHeapTuple(slot, false, nullptr);
	Size natts = static_cast<Size>(desc->natts);
	Size size = MAXALIGN(sizeof(PendingRow) + natts * (sizeof(Datum) + sizeof(bool)));
	PendingRow *row = static_cast<PendingRow *>(MemoryContextAlloc(context, size + tuple.t_len));

	memset(row, 0, sizeof(*row));
	row->values = reinterpret_cast<Datum *>(row + 1);
	row->nulls = reinterpret_cast<bool *>(row->values + natts);
	tuple.t_data =
		static_cast<HeapTupleHeader>(memcpy(reinterpret_cast<char *>(row) + size, tuple.t_data, tuple.t_len));
	heap_deform_tuple(&tuple, desc, row->values, row->nulls);
	return row;
}

} // namespace

PendingRow *
load(Table *table, TupleTableSlot *slot, MemoryContext context)
{
	using namespace pending_col;
	PendingRow *row = copy_of(RelationGetDescr(table->rel), slot, context);
	auto value = [&](int column) { return row->values[table->attno[column] - 1]; };
	auto is_null = [&](int column) { return row->nulls[table->attno[column] - 1]; };

	row->tid = slot->tts_tid;
	row->id = to_uuid(value(outbox_id));
	row->queue = DatumGetTextPP(value(queue));
	row->priority = DatumGetInt16(value(priority));
	row->attempt_count = DatumGetInt32(value(attempt_count));
	row->max_attempts = is_null(max_attempts) ? 0 : DatumGetInt32(value(max_attempts));
	row->next_attempt_at = DatumGetTimestampTz(value(next_attempt_at));
	row->claimable_at =
		claimable_at(row->next_attempt_at, !is_null(lease_expires_at), DatumGetTimestampTz(value(lease_expires_at)));
	row->created_at = DatumGetTimestampTz(value(created_at));
	row->release_count = DatumGetInt32(value(release_count));
	row->held_back = DatumGetBool(value(pending_col::held_back));
	row->partition_key = is_null(partition_key) ? nullptr : DatumGetTextPP(value(partition_key));
	row->sequence_id = is_null(sequence_id) ? 0 : DatumGetInt64(value(sequence_id));
	row->fair_key = is_null(fair_key) ? 0 : DatumGetInt64(value(fair_key));
	row->leased = !is_null(lease_token) && !is_null(claimed_by) && !is_null(claimed_at) && !is_null(lease_expires_at);
	if (row->leased)
	{
		row->claimed_by = DatumGetTextPP(value(claimed_by));
		row->claimed_at = DatumGetTimestampTz(value(claimed_at));
		row->lease_token = to_uuid(value(lease_token));
		row->lease_expires_at = DatumGetTimestampTz(value(lease_expires_at));
	}
	return row;
}

PendingRow *
find_pending(Call *call, const core::Uuid &id)
{
	Table *table = pending(call);
	PendingRow *row = nullptr;
	Probe *probe = probe_id(table, id);

	if (next_settled(probe, ForwardScanDirection))
		row = load(table, probe->slot);
	else
	{
		ScanKeyData key;

		OUTBOX_STOP_POINT("find_pending_missed");
		key_equals(&key, primary_index(table), 1, F_UUID_EQ, from_uuid(id));
		if (find_in_latest_snapshot(table, primary_index(table), &key, 1, probe->slot))
			row = load(table, probe->slot);
	}
	rest_probe(probe);
	return row;
}

void
put_lease(PendingRow *row, text *worker, TimestampTz at, const core::Uuid &token, TimestampTz expires_at)
{
	row->leased = true;
	row->claimed_by = worker;
	row->claimed_at = at;
	row->lease_token = token;
	row->lease_expires_at = expires_at;
}

void
clear_lease(PendingRow *row)
{
	row->leased = false;
}

void
count_attempt(PendingRow *row, int attempt_no)
{
	row->attempt_count = Max(row->attempt_count, attempt_no);
}

Changed
hold(Call *call, PendingRow *row, Wait wait)
{
	return hold_row(pending(call), &row->tid, wait);
}

namespace {

// The loaded version: an abort brings back its index entries.
Entry
loaded_entry(Table *table, const PendingRow *row)
{
	using namespace pending_col;
	auto value = [&](int column) { return row->values[table->attno[column] - 1]; };

	return {row->queue,
			DatumGetInt16(value(priority)),
			DatumGetTimestampTz(value(next_attempt_at)),
			!row->nulls[table->attno[lease_expires_at] - 1],
			DatumGetTimestampTz(value(lease_expires_at)),
			DatumGetBool(value(pending_col::held_back))};
}

Entry
changed_entry(const PendingRow *row)
{
	return {row->queue, row->priority, row->next_attempt_at, row->leased, row->lease_expires_at, row->held_back};
}

// The loaded version was a lease, and ends.
void
note_free_key(const Table *table, const PendingRow *row)
{
	if (row->fair_key < 0 && !row->nulls[table->attno[pending_col::lease_expires_at] - 1])
		note_key_freed(row->queue);
}

} // namespace

Changed
store(Call *call, PendingRow *row, Wait wait)
{
	using namespace pending_col;
	Table *table = pending(call);
	TupleTableSlot *slot = changed_row(table);
	Size natts = static_cast<Size>(slot->tts_tupleDescriptor->natts);
	Changed changed;

	memcpy(slot->tts_values, row->values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, row->nulls, natts * sizeof(bool));
	set(table, slot, priority, Int16GetDatum(static_cast<int16>(row->priority)));
	set(table, slot, attempt_count, Int32GetDatum(row->attempt_count));
	set(table, slot, next_attempt_at, TimestampTzGetDatum(row->next_attempt_at));
	set(table, slot, release_count, Int32GetDatum(row->release_count));
	set(table, slot, held_back, BoolGetDatum(row->held_back));
	if (row->leased)
	{
		set(table, slot, claimed_by, PointerGetDatum(row->claimed_by));
		set(table, slot, claimed_at, TimestampTzGetDatum(row->claimed_at));
		set(table, slot, lease_token, from_uuid(row->lease_token));
		set(table, slot, lease_expires_at, TimestampTzGetDatum(row->lease_expires_at));
	}
	else
		for (int column : {claimed_by, claimed_at, lease_token, lease_expires_at})
			set_null(table, slot, column);
	changed = update_row(table, &row->tid, slot, wait);
	if (changed == Changed::done)
	{
		note_removed(loaded_entry(table, row));
		note_made(changed_entry(row));
		if (!row->leased)
			note_free_key(table, row);
	}
	if (changed == Changed::done && row->leased)
		note_expiry(row->lease_expires_at);
	else if (changed == Changed::done && !row->held_back)
		note_due(row->queue, row->next_attempt_at, call->now);
	return changed;
}

Changed
remove(Call *call, PendingRow *row, Wait wait)
{
	Table *table = pending(call);
	Changed changed = delete_row(table, &row->tid, wait);

	if (changed == Changed::done)
	{
		note_removed(loaded_entry(table, row));
		note_free_key(table, row);
	}
	return changed;
}

} // namespace outbox
