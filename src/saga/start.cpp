// saga.start, saga.abort, saga.retry: sagas begin, and people intervene.
//
// Guarantees: of any number of sessions that start a saga with one key, one does, and the others wait for it and get
// that saga, or begin it if the first rolls back.

#include "rows/key_lock.h"
#include "saga/advance.h"
#include "saga/verb.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/json.h"

namespace outbox {

namespace {

Table *
runs_table(Call *call)
{
	return open(call, runs_shape, inserts);
}

void
insert_run(Call *call, const Instance *saga, const text *key, Jsonb *headers)
{
	Table *table = runs_table(call);
	TupleTableSlot *row = new_row(table);

	set(table, row, runs_col::saga_id, in_place(saga->id));
	set_text(table, row, runs_col::saga_type, saga->saga_type);
	set_text(table, row, runs_col::idempotency_key, key);
	set(table, row, runs_col::headers, JsonbPGetDatum(headers));
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
}

uint64
hash_of(const text *value, uint64 seed)
{
	return hash_bytes_extended(reinterpret_cast<const unsigned char *>(VARDATA_ANY(value)),
							   static_cast<int>(VARSIZE_ANY_EXHDR(value)), seed);
}

// True: the key has a saga. False: it is locked, and the caller inserts it.
bool
find_run_of_key(Call *call, const Instance *saga, const text *key, core::Uuid *found, KeyLock *held)
{
	Table *table = runs_table(call);
	Relation index = own_index(table, runs_index::key);
	uint64 hash = pg_hton64(hash_of(key, hash_of(saga->saga_type, 0)));
	ScanKeyData keys[2];
	bool isnull;
	bool is_newer;
	bool is_there;
	Probe probe;

	begin_probe(&probe, table, index, 2);
	key_equals(&keys[0], index, 1, F_TEXTEQ, PointerGetDatum(saga->saga_type));
	key_equals(&keys[1], index, 2, F_TEXTEQ, PointerGetDatum(key));
	is_there = look_up_latched(&probe, keys, 2, ForwardScanDirection, held,
							   reinterpret_cast<const unsigned char *>(&hash), sizeof(hash));
	is_newer = is_there && is_newer_than_snapshot(probe.slot);
	if (is_there)
		*found = to_uuid(table->get(probe.slot, runs_col::saga_id, &isnull));
	end_probe(&probe);
	if (is_newer)
		raise_changed_after_snapshot();
	if (is_there)
		unlock_key(held);
	return is_there;
}

// False: its key was used, by the saga of this id.
bool
make_run(Call *call, Instance *saga, const text *key, Jsonb *headers)
{
	KeyLock held;

	if (key != nullptr && find_run_of_key(call, saga, key, &saga->id, &held))
		return false;
	insert_run(call, saga, key, headers);
	if (key != nullptr)
		unlock_key(&held);
	return true;
}

void
require_definition(Call *call, Instance *saga)
{
	saga->definition_version = newest_version(call, saga->saga_type);
	if (saga->definition_version == 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("saga type \"%s\" is not defined", text_to_cstring(saga->saga_type)),
						errhint("Use saga.define.")));
}

void
start_run(Call *call, const Instance *saga, Jsonb *headers)
{
	Run run;

	begin_new_run(&run, call, saga);
	run.headers = headers;
	begin_stage(&run, 1);
	write_new_run(&run);
}

Jsonb *
metadata_with_reason(const text *reason)
{
	JsonObject metadata = begin_object();

	put_field(&metadata, "reason", reason);
	return end_object(&metadata);
}

Jsonb *
metadata_of_retry()
{
	JsonObject metadata = begin_object();

	put_field(&metadata, "retry", true);
	return end_object(&metadata);
}

void
abort_run(Run *run, text *reason)
{
	check_saga_transition(run->was.id, run->was.status, core::label(core::SagaStatus::compensating));
	begin_compensation(run, cstring_to_text(psprintf("aborted: %s", text_to_cstring(reason))));
	write_run(run, "state_changed", nullptr, metadata_with_reason(reason));
}

// Whether there were any.
bool
reopen_uncompensated(Run *run)
{
	bool any = false;

	for (int i = 0; i < run->count; i++)
	{
		if (run->states[i].status != core::StepStatus::uncompensated)
			continue;
		put_step_status(run, i, core::StepStatus::unknown);
		any = true;
	}
	return any;
}

} // namespace

OUTBOX_FUNCTION(outbox_saga_start)
{
	Instance saga = {};
	text *key = optional_text(fcinfo, 3);
	Jsonb *headers;
	Call call;

	saga.saga_type = required_text(fcinfo, 0, "saga_type");
	refuse_empty_key(key, "idempotency_key");
	saga.has_correlation = !PG_ARGISNULL(1);
	if (saga.has_correlation)
		saga.correlation_id = to_uuid(PG_GETARG_DATUM(1));
	saga.state = JsonbPGetDatum(object_argument(fcinfo, 2, "state"));
	headers = object_argument(fcinfo, 4, "headers");
	saga.status = core::SagaStatus::running;
	saga.id = new_saga_id();
	begin_call(&call, "saga.start()");
	require_definition(&call, &saga);
	if (make_run(&call, &saga, key, headers))
		start_run(&call, &saga, headers);
	end_call(&call);
	PG_RETURN_DATUM(from_uuid(saga.id));
}

OUTBOX_FUNCTION(outbox_saga_abort)
{
	core::Uuid saga_id = to_uuid(required_datum(fcinfo, 0, "saga_id"));
	text *reason = cut_for_ledger(required_nonempty_text(fcinfo, 1, "reason"));
	Run run;
	Call call;

	begin_call(&call, "saga.abort()");
	begin_run(&run, &call, &saga_id);
	read_steps(&run);
	if (run.was.status != core::SagaStatus::compensating)
		abort_run(&run, reason);
	end_call(&call);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_saga_retry)
{
	core::Uuid saga_id = to_uuid(required_datum(fcinfo, 0, "saga_id"));
	Run run;
	Call call;

	begin_call(&call, "saga.retry()");
	begin_run(&run, &call, &saga_id);
	if (run.was.definition_version > 0)
		read_steps(&run);
	if (!reopen_uncompensated(&run))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("saga %s has no compensation that gave up", shown(saga_id)),
						errhint("saga.uncompensated lists those.")));
	compensate_next(&run);
	write_run(&run, "state_changed", nullptr, metadata_of_retry());
	end_call(&call);
	PG_RETURN_VOID();
}

} // namespace outbox
