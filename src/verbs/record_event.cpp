// record_event: the SQL of the extension writes an audit event.
//
// Guarantees: those of message/audit_event.h. Only functions of the owner call it.

#include "message/audit_event.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

namespace {

core::Uuid *
ids_of(const ArrayArg &array)
{
	core::Uuid *ids =
		array.items == nullptr ? nullptr : static_cast<core::Uuid *>(palloc(sizeof(core::Uuid) * Max(array.count, 1)));

	check_no_nulls(array, "outbox_ids");
	for (int i = 0; i < array.count; i++)
		ids[i] = to_uuid(array.items[i]);
	return ids;
}

Audited
event_named(const text *name)
{
	Audited what;

	if (!find_audited(text_to_cstring(name), &what))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown event \"%s\"", shown(name)),
						errhint("The events are those of docs/audit.md.")));
	return what;
}

} // namespace

OUTBOX_FUNCTION(outbox_record_event)
{
	text *name = required_nonempty_text(fcinfo, 0, "event");
	ArrayArg ids = optional_array(fcinfo, 2, "outbox_ids");
	Jsonb *detail = DatumGetJsonbP(required_datum(fcinfo, 3, "detail"));
	AuditEvent event = {event_named(name)};
	core::Uuid id;
	Call call;

	if (!is_json_object(detail))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("detail must be a JSON object, not %s", json_type_of(detail))));
	event.queue = optional_text(fcinfo, 1);
	event.ids = ids_of(ids);
	event.count = ids.count;
	event.detail = detail;
	begin_call(&call, "record_event()");
	id = record_event(&call, event);
	end_call(&call);
	return from_uuid(id);
}

} // namespace outbox
