// See queue_events.h.

#include "verbs/queue_events.h"

#include "message/audit_notes.h"

namespace outbox {

namespace {

Jsonb *
settings_in(TupleTableSlot *row)
{
	Datum json;

	if (row == nullptr)
		return nullptr;
	json = DirectFunctionCall1(row_to_json, ExecFetchSlotHeapTupleDatum(row));
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json))));
}

// By the script of an extension, before the dated partitions are there: its row in DEFAULT would be in their way.
bool
is_made_in_restore()
{
	return creating_extension && partitions_end_ms() == PG_INT64_MAX;
}

} // namespace

void
record_queue_event(Call *call, Audited what, const text *name, TupleTableSlot *was_row, TupleTableSlot *becomes_row)
{
	Jsonb *was = settings_in(was_row);
	Jsonb *becomes = settings_in(becomes_row);
	JsonObject detail = begin_object();
	AuditEvent event = {what, name};

	note_auditing_changed(call);
	if (is_made_in_restore())
		return;
	if (was != nullptr)
		put_field(&detail, "old", becomes != nullptr ? changed_fields(becomes, was) : was);
	if (becomes != nullptr)
		put_field(&detail, "new", was != nullptr ? changed_fields(was, becomes) : becomes);
	event.detail = end_object(&detail);
	record_event(call, event);
}

} // namespace outbox
