// See dead.h.

#include "message/dead.h"

#include "commit/transaction.h"
#include "rows/probe.h"
#include "server/args.h"

namespace outbox {

namespace {

using namespace dead_col;

// The row in its newest committed version, or as this transaction left it.
bool
find_dead(Table *dead, const core::Uuid &id, TupleTableSlot *row)
{
	ScanKeyData key;

	key_equals(&key, primary_index(dead), 1, F_UUID_EQ, from_uuid(id));
	return find_in_latest_snapshot(dead, primary_index(dead), &key, 1, row);
}

bool
is_open(const Table *dead, TupleTableSlot *row)
{
	bool isnull;

	dead->get(row, acknowledged_at, &isnull);
	return isnull;
}

text *
queue_of(const Table *dead, TupleTableSlot *row)
{
	bool isnull;

	return DatumGetTextPP(dead->get(row, queue, &isnull));
}

TupleTableSlot *
acknowledged_row(const Call *call, const Table *dead, TupleTableSlot *from, const text *by, const text *why)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(RelationGetDescr(dead->rel), &TTSOpsVirtual);
	Size natts = static_cast<Size>(row->tts_tupleDescriptor->natts);

	slot_getallattrs(from);
	memcpy(row->tts_values, from->tts_values, natts * sizeof(Datum));
	memcpy(row->tts_isnull, from->tts_isnull, natts * sizeof(bool));
	set(dead, row, acknowledged_at, TimestampTzGetDatum(call->now));
	set_text(dead, row, acknowledged_by, by);
	set_text(dead, row, reason, cut_for_ledger(why));
	ExecStoreVirtualTuple(row);
	return row;
}

} // namespace

void
add_dead(Call *call, const core::Uuid &id, const text *of, TimestampTz at)
{
	Table *dead = open(call, dead_shape, inserts);
	TupleTableSlot *row = table_slot_create(dead->rel, nullptr);
	bool is_there = find_dead(dead, id, row);

	ExecDropSingleTupleTableSlot(row);
	row = new_row(dead);
	set(dead, row, outbox_id, from_uuid(id));
	set_text(dead, row, queue, of);
	set(dead, row, died_at, TimestampTzGetDatum(at));
	if (!is_there)
	{
		insert_rows(dead, &row, 1);
		note_dead(of, 1);
	}
	ExecDropSingleTupleTableSlot(row);
}

bool
remove_dead(Call *call, const core::Uuid &id)
{
	Table *dead = open(call, dead_shape, deletes);
	TupleTableSlot *row = table_slot_create(dead->rel, nullptr);
	bool was_open = true;

	while (find_dead(dead, id, row))
	{
		Changed changed;

		CHECK_FOR_INTERRUPTS();
		changed = delete_row(dead, &row->tts_tid, call->wait);
		if (changed == Changed::busy)
			raise_busy(dead);
		if (changed != Changed::done)
			continue;
		was_open = is_open(dead, row);
		if (was_open)
			note_dead(queue_of(dead, row), -1);
		break;
	}
	ExecDropSingleTupleTableSlot(row);
	return was_open;
}

bool
is_dead(Call *call, const core::Uuid &id)
{
	Table *dead = open(call, dead_shape, reads);
	TupleTableSlot *row = table_slot_create(dead->rel, nullptr);
	bool found = find_dead(dead, id, row);

	ExecDropSingleTupleTableSlot(row);
	return found;
}

Acknowledged
acknowledge(Call *call, const core::Uuid &id, const text *by, const text *reason, text **of)
{
	Table *dead = open(call, dead_shape, updates);
	TupleTableSlot *row = table_slot_create(dead->rel, nullptr);
	Acknowledged result = Acknowledged::never;

	while (result == Acknowledged::never && find_dead(dead, id, row))
	{
		TupleTableSlot *changed;

		CHECK_FOR_INTERRUPTS();
		if (!is_open(dead, row))
		{
			result = Acknowledged::before;
			break;
		}
		changed = acknowledged_row(call, dead, row, by, reason);
		if (update_row(dead, &row->tts_tid, changed, Wait::for_row) == Changed::done)
		{
			note_dead(queue_of(dead, row), -1);
			*of = copied_text(dead, row, queue);
			result = Acknowledged::now;
		}
		ExecDropSingleTupleTableSlot(changed);
	}
	ExecDropSingleTupleTableSlot(row);
	return result;
}

} // namespace outbox
