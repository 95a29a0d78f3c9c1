// saga.create, saga.load, saga.save: sagas of an orchestrator of the user's own.
//
// Guarantees: of two sessions that create one saga the second waits for the first, and then gets 42710 or creates it.
// saga.save changes the version that its caller has seen, or nothing.

#include "rows/key_lock.h"
#include "saga/instance.h"
#include "saga/verb.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "server/json.h"

namespace outbox {

namespace {

// Returns with the key locked: the caller inserts it.
void
lock_new_saga(Call *call, const core::Uuid &id, KeyLock *held)
{
	Table *table = open(call, instances_shape, inserts | updates);
	ScanKeyData key;
	Probe probe;
	bool found;

	begin_probe(&probe, table, primary_index(table), 1);
	key_equals(&key, primary_index(table), 1, F_UUID_EQ, in_place(id));
	// The tail of an id is random.
	found = look_up_latched(&probe, &key, 1, ForwardScanDirection, held, id.bytes + UUID_LEN - 6, 6);
	end_probe(&probe);
	if (found)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("saga %s exists", shown(id))));
}

void
check_expected_version(const Instance &saga, int64 expected)
{
	const char *changed_at =
		DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(saga.updated_at)));

	if (saga.version == expected)
		return;
	ereport(ERROR, (errcode(ERRCODE_SAGA_VERSION_CONFLICT),
					errmsg("VERSION_CONFLICT: saga %s has another version", shown(saga.id)),
					errdetail("Expected version " INT64_FORMAT ", found " INT64_FORMAT ", changed at %s.", expected,
							  saga.version, changed_at),
					errhint("Load the saga again, and decide by what it is now.")));
}

void
refuse_orchestrated(const Instance &saga)
{
	if (saga.definition_version == 0)
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("saga %s is run by the orchestrator", shown(saga.id)),
					errhint("Its state changes with the answers to its commands: use the state_patch of "
							"saga.succeed.")));
}

Jsonb *
error_metadata(const text *error)
{
	JsonObject metadata = begin_object();

	if (error != nullptr)
		put_field(&metadata, "error", error);
	return end_object(&metadata);
}

} // namespace

OUTBOX_FUNCTION(outbox_saga_create)
{
	Instance saga = {};
	bool is_given = !PG_ARGISNULL(3);
	KeyLock held;
	Call call;

	saga.saga_type = required_text(fcinfo, 0, "saga_type");
	saga.has_correlation = !PG_ARGISNULL(1);
	if (saga.has_correlation)
		saga.correlation_id = to_uuid(PG_GETARG_DATUM(1));
	saga.state = JsonbPGetDatum(object_argument(fcinfo, 2, "state"));
	saga.id = is_given ? to_uuid(PG_GETARG_DATUM(3)) : new_saga_id();
	saga.status = core::SagaStatus::started;
	begin_call(&call, "saga.create()");
	if (is_given)
		lock_new_saga(&call, saga.id, &held);
	make_instance(&call, &saga, {"created", nullptr, nullptr, nullptr, false});
	if (is_given)
		unlock_key(&held);
	end_call(&call);
	PG_RETURN_DATUM(from_uuid(saga.id));
}

OUTBOX_FUNCTION(outbox_saga_load)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "saga_id"));
	bool for_update = required_bool(fcinfo, 1, "for_update");
	StoredRow row;
	Datum result;
	Call call;

	if (for_update)
	{
		begin_call(&call, "saga.load()");
		lock_instance(&call, &id, &row);
		result = instance_datum(&call, &row);
		end_call(&call);
		return result;
	}
	begin_reading(&call);
	result = read_instance(&call, id);
	end_reading(&call);
	return result;
}

OUTBOX_FUNCTION(outbox_saga_save)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "saga_id"));
	const char *status = text_to_cstring(required_text(fcinfo, 2, "status"));
	int64 expected = DatumGetInt64(required_datum(fcinfo, 3, "expected_version"));
	Jsonb *state = object_argument(fcinfo, 1, "state");
	text *current_step = optional_text(fcinfo, 4);
	text *error = cut_for_ledger(optional_text(fcinfo, 5));
	Instance was;
	Instance becomes;
	StoredRow row;
	Call call;

	begin_call(&call, "saga.save()");
	was = lock_instance(&call, &id, &row);
	check_expected_version(was, expected);
	refuse_orchestrated(was);
	check_saga_transition(id, was.status, status);
	becomes = was;
	becomes.state = JsonbPGetDatum(state);
	becomes.status = core::saga_status(status);
	becomes.current_step = current_step;
	becomes.last_error = error != nullptr ? error : was.last_error;
	becomes.retry_count += error != nullptr ? 1 : 0;
	put_instance(&call, &row, was, &becomes, {"state_changed", current_step, error_metadata(error), nullptr, false});
	end_call(&call);
	PG_RETURN_INT64(becomes.version);
}

} // namespace outbox
