// See audit_event.h.

#include "message/audit_event.h"

#include "commit/record_floor.h"
#include "server/client.h"
#include "server/random.h"

namespace outbox {

namespace {

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

// What every row tells of its session. It rarely changes, so it is kept.
Jsonb *
session_detail()
{
	static MemoryContext context;
	static Jsonb *kept;
	static char *kept_name;
	JsonObject object;
	Jsonb *made;

	if (kept != nullptr && strcmp(kept_name, application_name) == 0)
		return kept;
	object = begin_object();
	put_field(&object, "application_name", application_name);
	put_field(&object, "client_addr", client_address());
	made = end_object(&object);
	if (context == nullptr)
		context = AllocSetContextCreate(TopMemoryContext, "outbox audit events", ALLOCSET_SMALL_SIZES);
	kept = nullptr;
	MemoryContextReset(context);
	kept_name = MemoryContextStrdup(context, application_name);
	kept = copied_to(context, made);
	return kept;
}

Datum
ids_array(const AuditEvent &event)
{
	Datum *items = static_cast<Datum *>(palloc(sizeof(Datum) * static_cast<Size>(event.count)));

	for (int i = 0; i < event.count; i++)
		items[i] = in_place(event.ids[i]);
	return PointerGetDatum(construct_array(items, event.count, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}

Datum
numbers_array(const AuditEvent &event)
{
	Datum *items = static_cast<Datum *>(palloc(sizeof(Datum) * static_cast<Size>(event.count)));

	for (int i = 0; i < event.count; i++)
		items[i] = Int32GetDatum(event.attempt_nos[i]);
	return PointerGetDatum(construct_array(items, event.count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

void
fill_audit_event(const Table *leaf, TupleTableSlot *row, const core::Uuid &id, TimestampTz time,
				 const AuditEvent &event)
{
	using namespace audit_events_col;
	Jsonb *session = event.session != nullptr ? event.session : session_detail();

	set(leaf, row, event_id, from_uuid(id));
	set(leaf, row, audit_events_col::event, CStringGetTextDatum(event.event));
	set(leaf, row, at, TimestampTzGetDatum(time));
	set_text(leaf, row, queue, event.queue);
	set_text(leaf, row, worker_id, event.worker_id);
	set_text(leaf, row, actor, event.actor != nullptr ? event.actor : session_user_name());
	if (event.ids != nullptr)
		set(leaf, row, outbox_ids, ids_array(event));
	if (event.attempt_nos != nullptr)
		set(leaf, row, attempt_nos, numbers_array(event));
	if (event.lease_expires_at != 0)
		set(leaf, row, lease_expires_at, TimestampTzGetDatum(event.lease_expires_at));
	set(leaf, row, detail, JsonbPGetDatum(event.detail == nullptr ? session : merged(event.detail, session)));
}

} // namespace

void
record_for_message(Call *call, const char *what, const text *queue, const core::Uuid &id, int attempt_no,
				   const text *reason)
{
	AuditEvent event = {what, queue, nullptr, &id, attempt_no > 0 ? &attempt_no : nullptr, 1};
	JsonObject detail = begin_object();

	if (reason != nullptr)
		put_field(&detail, "reason", reason);
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
