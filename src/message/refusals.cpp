// See refusals.h.

#include "message/refusals.h"

#include "server/client.h"

namespace outbox {

namespace {

void
put_text(char *place, int size, const text *value)
{
	put_refused_text(place, size, value != nullptr ? text_to_cstring(value) : "");
}

Oid
this_extension()
{
	return relation_oid(queues_shape.name);
}

void
push(const text *queue, const core::Uuid &id, const text *worker, Audited what)
{
	const char *actor = GetUserNameFromId(GetSessionUserId(), true);
	DatabaseSlot *slot = my_database();
	RefusedReport report = {};

	if (slot == nullptr)
		return;
	report.extension = this_extension();
	report.is_terminal = what == Audited::blocked;
	report.id = id;
	report.at = GetCurrentTimestamp();
	put_text(report.queue, sizeof(report.queue), queue);
	put_text(report.worker, sizeof(report.worker), worker);
	put_text(report.client_address, sizeof(report.client_address), client_address());
	put_refused_text(report.actor, sizeof(report.actor), actor != nullptr ? actor : "");
	put_refused_text(report.application_name, sizeof(report.application_name), application_name);
	if (push_refused(&slot->refused, report))
		wake_process(pg_atomic_read_u32(&slot->worker));
}

Jsonb *
session_of(const RefusedReport &report)
{
	JsonObject object = begin_object();

	put_field(&object, "application_name", report.application_name);
	if (report.client_address[0] != '\0')
		put_field(&object, "client_addr", report.client_address);
	else
		put_field(&object, "client_addr", static_cast<const text *>(nullptr));
	return end_object(&object);
}

} // namespace

void
note_refusal(Call *call, const core::Uuid &id, const text *worker, Audited what, bool raises)
{
	const text *queue = raises && shared == nullptr ? nullptr : audited_queue_of(call, id);

	if (queue == nullptr)
		return;
	if (raises)
		push(queue, id, worker, what);
	else
		note_audited(call, {what, queue, worker, id, 0});
}

void
write_refused(Call *call, const RefusedReport &report)
{
	AuditEvent event = {report.is_terminal ? Audited::blocked : Audited::refused};
	JsonObject detail;

	if (report.extension != this_extension())
		return;
	detail = begin_object();
	put_field(&detail, "refused_at", timestamptz_to_str(report.at));
	event.queue = cstring_to_text(report.queue);
	event.worker_id = cstring_to_text(report.worker);
	event.ids = &report.id;
	event.count = 1;
	event.actor = cstring_to_text(report.actor);
	event.session = session_of(report);
	event.detail = end_object(&detail);
	record_event(call, event);
}

void
write_lost_refusals(Call *call, const LostRefusals &lost)
{
	AuditEvent event = {Audited::refusals_lost};
	JsonObject detail;

	if (lost.count == 0 || lost.extension != this_extension())
		return;
	detail = begin_object();
	put_field(&detail, "count", static_cast<int32>(Min(lost.count, PG_INT32_MAX)));
	event.detail = end_object(&detail);
	record_event(call, event);
}

} // namespace outbox
