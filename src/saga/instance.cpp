// See instance.h.

#include "saga/instance.h"

#include "saga/audit.h"
#include "server/errors.h"
#include "server/json.h"
#include "server/random.h"

namespace outbox {

namespace {

using namespace instances_col;

Table *
instances(Call *call)
{
	return open(call, instances_shape, inserts | updates);
}

Instance
decode_instance(const Table *table, const StoredRow *row)
{
	Instance instance = {};
	bool isnull;
	text *status_text = text_of(table, row, status);

	instance.id = to_uuid(value_of(table, row, id, &isnull));
	instance.saga_type = text_of(table, row, saga_type);
	instance.correlation_id = {};
	Datum correlation = value_of(table, row, correlation_id, &isnull);
	instance.has_correlation = !isnull;
	if (!isnull)
		instance.correlation_id = to_uuid(correlation);
	instance.state = value_of(table, row, state, &isnull);
	instance.status = core::saga_status({VARDATA_ANY(status_text), VARSIZE_ANY_EXHDR(status_text)});
	instance.current_step = text_of(table, row, current_step);
	instance.version = DatumGetInt64(value_of(table, row, version, &isnull));
	instance.last_error = text_of(table, row, last_error);
	instance.retry_count = DatumGetInt32(value_of(table, row, retry_count, &isnull));
	instance.deadline = DatumGetTimestampTz(value_of(table, row, deadline, &isnull));
	instance.has_deadline = !isnull;
	instance.definition_version = DatumGetInt32(value_of(table, row, definition_version, &isnull));
	instance.created_at = DatumGetTimestampTz(value_of(table, row, created_at, &isnull));
	instance.updated_at = DatumGetTimestampTz(value_of(table, row, updated_at, &isnull));
	instance.completed_at = DatumGetTimestampTz(value_of(table, row, completed_at, &isnull));
	instance.has_end = !isnull;
	return instance;
}

// What changes.
void
fill_changing(const Table *table, TupleTableSlot *row, const Instance *instance)
{
	set(table, row, state, instance->state);
	set(table, row, status, CStringGetTextDatum(core::label(instance->status)));
	set_text(table, row, current_step, instance->current_step);
	set(table, row, version, Int64GetDatum(instance->version));
	set_text(table, row, last_error, instance->last_error);
	set(table, row, retry_count, Int32GetDatum(instance->retry_count));
	set(table, row, updated_at, TimestampTzGetDatum(instance->updated_at));
	if (instance->has_deadline)
		set(table, row, deadline, TimestampTzGetDatum(instance->deadline));
	else
		set_null(table, row, deadline);
	if (instance->has_end)
		set(table, row, completed_at, TimestampTzGetDatum(instance->completed_at));
	else
		set_null(table, row, completed_at);
}

void
fill_new(const Table *table, TupleTableSlot *row, const Instance *instance)
{
	set(table, row, id, in_place(instance->id));
	set_text(table, row, saga_type, instance->saga_type);
	if (instance->has_correlation)
		set(table, row, correlation_id, in_place(instance->correlation_id));
	if (instance->definition_version > 0)
		set(table, row, definition_version, Int32GetDatum(instance->definition_version));
	set(table, row, created_at, TimestampTzGetDatum(instance->created_at));
	fill_changing(table, row, instance);
}

[[noreturn]] void
raise_saga_not_found(const core::Uuid *saga_id)
{
	ereport(ERROR, (errcode(ERRCODE_SAGA_NOT_FOUND),
					errmsg("SAGA_NOT_FOUND: there is no saga %s", saga_id != nullptr ? shown(*saga_id) : "<NULL>")));
}

// A snapshot that sees all that this transaction has done.
Snapshot
push_current_snapshot()
{
	CommandCounterIncrement();
	if (IsolationUsesXactSnapshot())
	{
		PushCopiedSnapshot(GetActiveSnapshot());
		UpdateActiveSnapshotCommandId();
	}
	else
		PushActiveSnapshot(GetLatestSnapshot());
	return GetActiveSnapshot();
}

bool
find_visible(Table *table, const core::Uuid &saga_id, TupleTableSlot *slot)
{
	Snapshot snapshot = push_current_snapshot();
	ScanKeyData key;
	bool found;

	key_equals(&key, primary_index(table), 1, F_UUID_EQ, in_place(saga_id));
	found = find_in_snapshot(table->rel, primary_index(table), &key, 1, slot, snapshot);
	PopActiveSnapshot();
	return found;
}

// The newest version that is not of an open transaction, in the table's probe, which the caller rests.
TupleTableSlot *
find_newest(Table *table, const core::Uuid &saga_id)
{
	Probe *probe = probe_id(table, saga_id);
	ScanKeyData key;

	prune_late(probe);
	if (next_settled(probe, ForwardScanDirection))
		return probe->slot;
	// A probe that reads while the row is updated can miss both versions.
	key_equals(&key, primary_index(table), 1, F_UUID_EQ, in_place(saga_id));
	return find_in_latest_snapshot(table, primary_index(table), &key, 1, probe->slot) ? probe->slot : nullptr;
}

[[noreturn]] void
raise_newer(Table *table, const core::Uuid &saga_id)
{
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	bool was_there = find_visible(table, saga_id, slot);

	ExecDropSingleTupleTableSlot(slot);
	if (!was_there)
		raise_saga_not_found(&saga_id);
	raise_changed_after_snapshot();
}

// Changed::outdated: look again.
Changed
try_to_lock(Table *table, const core::Uuid &saga_id, StoredRow *row)
{
	TupleTableSlot *slot = find_newest(table, saga_id);
	bool is_newer = slot != nullptr && is_newer_than_snapshot(slot);

	if (slot != nullptr)
		*row = copy_row(table, slot);
	rest_probe(table->id_probe);
	if (slot == nullptr)
		raise_saga_not_found(&saga_id);
	if (is_newer)
		raise_newer(table, saga_id);
	return hold_row(table, &row->tid, Wait::for_row);
}

} // namespace

core::Uuid
new_saga_id()
{
	static core::IdClock clock;

	return core::next_id(clock, GetCurrentTimestamp() + unix_epoch_offset_us, PG_INT64_MAX, random_bits());
}

TransactionId
inserter_of(TupleTableSlot *slot)
{
	return HeapTupleHeaderGetXmin(ExecFetchSlotHeapTuple(slot, false, nullptr)->t_data);
}

bool
is_newer_than_snapshot(TupleTableSlot *slot)
{
	TransactionId inserter;

	if (!IsolationUsesXactSnapshot())
		return false;
	inserter = inserter_of(slot);
	return !TransactionIdIsCurrentTransactionId(inserter) && XidInMVCCSnapshot(inserter, GetActiveSnapshot());
}

void
raise_changed_after_snapshot()
{
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("could not serialize access due to concurrent update")));
}

Instance
lock_instance(Call *call, const core::Uuid *saga_id, StoredRow *row)
{
	Table *table;

	if (saga_id == nullptr)
		raise_saga_not_found(saga_id);
	table = instances(call);
	while (try_to_lock(table, *saga_id, row) != Changed::done)
		CHECK_FOR_INTERRUPTS();
	return decode_instance(table, row);
}

Datum
instance_datum(Call *call, const StoredRow *row)
{
	TupleDesc desc = RelationGetDescr(instances(call)->rel);

	return heap_copy_tuple_as_datum(heap_form_tuple(desc, row->values, row->nulls), desc);
}

Datum
read_instance(Call *call, const core::Uuid &saga_id)
{
	Table *table = open(call, instances_shape, reads);
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	Datum result;

	if (!find_visible(table, saga_id, slot))
		raise_saga_not_found(&saga_id);
	result = heap_copy_tuple_as_datum(ExecFetchSlotHeapTuple(slot, false, nullptr), RelationGetDescr(table->rel));
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

void
raise_invalid_transition(const char *what, const char *from, const char *to)
{
	ereport(ERROR, (errcode(ERRCODE_SAGA_INVALID_TRANSITION),
					errmsg("INVALID_TRANSITION: %s cannot go from %s to %s", what, from, to),
					errhint("saga.transitions lists what is possible.")));
}

void
check_saga_transition(const core::Uuid &saga_id, core::SagaStatus from, const char *to)
{
	if (!core::may_follow(from, core::saga_status(to)))
		raise_invalid_transition(psprintf("saga %s", shown(saga_id)), core::label(from), to);
}

void
make_instance(Call *call, Instance *instance, Change change)
{
	Table *table = instances(call);
	TupleTableSlot *row = new_row(table);
	AuditRow audit = {nullptr, instance, change};

	check_saga_transition(instance->id, core::SagaStatus::absent, core::label(instance->status));
	instance->version = 1;
	instance->retry_count = 0;
	instance->created_at = instance->updated_at = GetCurrentTimestamp();
	fill_new(table, row, instance);
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
	write_audit(call, &audit, 1);
}

namespace {

// What each change brings with it. Returns the event that it is.
const char *
raise_version(const Instance &was, Instance *becomes, const char *event_type)
{
	becomes->version = was.version + 1;
	becomes->updated_at = GetCurrentTimestamp();
	if (becomes->status == was.status)
		return event_type;
	check_saga_transition(was.id, was.status, core::label(becomes->status));
	becomes->has_end = core::has_ended(becomes->status);
	becomes->completed_at = becomes->updated_at;
	return becomes->has_end ? core::label(becomes->status) : event_type;
}

} // namespace

void
put_instance(Call *call, const StoredRow *stored, const Instance &was, Instance *becomes, const Change &change)
{
	Table *table = instances(call);
	ItemPointerData tid = stored->tid;
	Instance between = *becomes;
	AuditRow audit[2];
	int changes = 0;
	TupleTableSlot *row;

	audit[0] = {&was, becomes, change};
	// Nothing was to be compensated.
	if (was.status == core::SagaStatus::running && becomes->status == core::SagaStatus::failed)
	{
		between.status = core::SagaStatus::compensating;
		audit[0].becomes = &between;
		audit[0].change.event_type = raise_version(was, &between, change.event_type);
		audit[1] = {&between, becomes, change};
		audit[1].change.metadata = nullptr;
		changes = 1;
	}
	audit[changes].change.event_type = raise_version(*audit[changes].was, becomes, change.event_type);
	row = row_again(table, stored);
	fill_changing(table, row, becomes);
	update_own_row(table, &tid, row);
	write_audit(call, audit, changes + 1);
}

} // namespace outbox
