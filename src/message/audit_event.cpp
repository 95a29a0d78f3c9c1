// See audit_event.h.

#include "message/audit_event.h"

#include "commit/record_floor.h"
#include "server/args.h"
#include "server/client.h"
#include "server/random.h"

namespace outbox {

namespace {

constexpr const char *names[] = {"LEASE_CLAIMED",
								 "LEASE_RENEWED",
								 "LEASE_RELEASED",
								 "LEASE_EXPIRED_REPAIRED",
								 "ATTEMPT_COMPLETED",
								 "TERMINAL_BLOCKED",
								 "LEASE_LOST_REFUSED",
								 "REFUSALS_LOST",
								 "QUEUE_CREATED",
								 "QUEUE_ALTERED",
								 "QUEUE_PAUSED",
								 "QUEUE_RESUMED",
								 "QUEUE_DROPPED",
								 "MESSAGE_CANCELLED",
								 "MESSAGE_REPLAYED",
								 "MESSAGE_RESCHEDULED",
								 "LEASE_BROKEN",
								 "DEAD_ACKNOWLEDGED",
								 "KEY_UNBLOCKED",
								 "PENDING_RESTORED",
								 "RETENTION_SET",
								 "PARTITION_RETIRED",
								 "SEALED",
								 "ERASED",
								 "KEY_ROTATED"};
static_assert(lengthof(names) == static_cast<int>(Audited::key_rotated) + 1);

core::Uuid
draw_event_id(TimestampTz at)
{
	static core::IdClock clock;

	return core::next_id(clock, at + unix_epoch_offset_us, partitions_end_ms(), random_bits());
}

text *
session_user_name()
{
	return cstring_to_text(GetUserNameFromId(GetSessionUserId(), false));
}

// What a row tells of its session, and of the states of attempts. Mostly it is that of the last such row.
struct Kept {
	MemoryContext context;
	Jsonb *detail; // nullptr: none yet
	const char *application;
	int states[core::records];
};

Jsonb *
make_detail(const int *states)
{
	JsonObject object = begin_object();

	put_field(&object, "application_name", application_name);
	put_field(&object, "client_addr", client_address());
	if (states != nullptr)
	{
		open_inner(&object, "states");
		for (int i = static_cast<int>(core::Record::dispatched); i < core::records; i++)
			if (states[i] > 0)
				put_field(&object, core::name(static_cast<core::Record>(i)), static_cast<int32>(states[i]));
		close_inner(&object);
	}
	return end_object(&object);
}

void
keep_detail(Kept *kept, const int *states)
{
	Jsonb *made = make_detail(states);

	if (kept->context == nullptr)
		kept->context = AllocSetContextCreate(TopMemoryContext, "outbox audit events", ALLOCSET_SMALL_SIZES);
	kept->detail = nullptr;
	MemoryContextReset(kept->context);
	kept->application = MemoryContextStrdup(kept->context, application_name);
	if (states != nullptr)
		memcpy(kept->states, states, sizeof(kept->states));
	kept->detail = copied_to(kept->context, made);
}

Jsonb *
detail_of_session(const int *states)
{
	static Kept kept[2];
	Kept *one = &kept[states != nullptr];

	if (one->detail == nullptr || strcmp(one->application, application_name) != 0 ||
		(states != nullptr && memcmp(one->states, states, sizeof(one->states)) != 0))
		keep_detail(one, states);
	return one->detail;
}

// As construct_array(), of items that lie there as in the array.
Datum
array_of(const void *items, int count, Size item_size, Oid type)
{
	Size size = ARR_OVERHEAD_NONULLS(1) + item_size * static_cast<Size>(count);
	ArrayType *array;

	if (count == 0)
		return PointerGetDatum(construct_empty_array(type));
	array = static_cast<ArrayType *>(palloc(size));
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = 0; // no NULL
	array->elemtype = type;
	ARR_DIMS(array)[0] = count;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), items, item_size * static_cast<Size>(count));
	return PointerGetDatum(array);
}

void
fill_audit_event(const Table *leaf, TupleTableSlot *row, const core::Uuid &id, TimestampTz time,
				 const AuditEvent &event)
{
	using namespace audit_events_col;
	Jsonb *session = event.session != nullptr ? event.session : detail_of_session(event.states);

	set(leaf, row, event_id, from_uuid(id));
	set(leaf, row, audit_events_col::event, CStringGetTextDatum(names[static_cast<int>(event.what)]));
	set(leaf, row, at, TimestampTzGetDatum(time));
	set_text(leaf, row, queue, event.queue);
	set_text(leaf, row, worker_id, event.worker_id);
	set_text(leaf, row, actor, event.actor != nullptr ? event.actor : session_user_name());
	if (event.ids != nullptr)
		set(leaf, row, outbox_ids, array_of(event.ids, event.count, UUID_LEN, UUIDOID));
	if (event.attempt_nos != nullptr)
		set(leaf, row, attempt_nos, array_of(event.attempt_nos, event.count, sizeof(int32), INT4OID));
	if (event.lease_expires_at != 0)
		set(leaf, row, lease_expires_at, TimestampTzGetDatum(event.lease_expires_at));
	set(leaf, row, detail, JsonbPGetDatum(event.detail == nullptr ? session : merged(event.detail, session)));
}

} // namespace

bool
find_audited(const char *name, Audited *what)
{
	for (int i = 0; i < static_cast<int>(lengthof(names)); i++)
		if (strcmp(names[i], name) == 0)
		{
			*what = static_cast<Audited>(i);
			return true;
		}
	return false;
}

void
record_for_message(Call *call, Audited what, const text *queue, const core::Uuid &id, int attempt_no,
				   const text *reason)
{
	AuditEvent event = {what, queue, nullptr, &id, attempt_no > 0 ? &attempt_no : nullptr, 1};
	JsonObject detail = begin_object();

	if (reason != nullptr)
		put_field(&detail, "reason", cut_for_ledger(reason));
	event.detail = end_object(&detail);
	record_event(call, event);
}

core::Uuid
record_event(Call *call, const AuditEvent &event)
{
	TimestampTz at = record_time();
	core::Uuid id = draw_event_id(at);
	Table *leaf = leaf_of(call, audit_events_shape, id, inserts);
	TupleTableSlot *row = new_row(leaf);

	fill_audit_event(leaf, row, id, at, event);
	insert_rows(leaf, &row, 1);
	ExecDropSingleTupleTableSlot(row);
	return id;
}

} // namespace outbox
