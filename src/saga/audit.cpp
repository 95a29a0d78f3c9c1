// See audit.h.

#include "saga/audit.h"

#include "server/json.h"

namespace outbox {

namespace {

using namespace audit_log_col;

Datum
changed_state(const AuditRow *one)
{
	Jsonb *was_state = one->was != nullptr ? DatumGetJsonbP(one->was->state) : empty_object();

	return JsonbPGetDatum(changed_fields(was_state, DatumGetJsonbP(one->becomes->state)));
}

void
fill_audit(const Table *table, TupleTableSlot *row, const AuditRow *one)
{
	const Instance *becomes = one->becomes;
	const Change *change = &one->change;

	set(table, row, saga_id, in_place(becomes->id));
	set(table, row, version, Int64GetDatum(becomes->version));
	set_text(table, row, saga_type, becomes->saga_type);
	set(table, row, event_type, CStringGetTextDatum(change->event_type));
	set_text(table, row, step, change->step);
	if (one->was != nullptr)
		set(table, row, old_status, CStringGetTextDatum(core::label(one->was->status)));
	set(table, row, new_status, CStringGetTextDatum(core::label(becomes->status)));
	if (one->was != nullptr && !change->only_changes)
		set(table, row, old_state, one->was->state);
	set(table, row, new_state, change->only_changes ? changed_state(one) : becomes->state);
	set(table, row, user_id, CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false)));
	set_text(table, row, trace_id, change->trace_id);
	set(table, row, at, TimestampTzGetDatum(becomes->updated_at));
	set(table, row, metadata, JsonbPGetDatum(change->metadata != nullptr ? change->metadata : empty_object()));
}

} // namespace

void
write_audit(Call *call, const AuditRow *rows, int count)
{
	Table *table = open(call, audit_log_shape, inserts);

	for (int i = 0; i < count; i++)
	{
		TupleTableSlot *row = new_row(table);

		fill_audit(table, row, &rows[i]);
		insert_rows(table, &row, 1);
		ExecDropSingleTupleTableSlot(row);
	}
}

text *
trace_id_in(Jsonb *headers)
{
	const text *parent = field_text(headers, "traceparent");
	const char *begin;
	const char *end;
	const char *limit;

	if (parent == nullptr)
		return nullptr;
	limit = VARDATA_ANY(parent) + VARSIZE_ANY_EXHDR(parent);
	begin = static_cast<const char *>(memchr(VARDATA_ANY(parent), '-', VARSIZE_ANY_EXHDR(parent)));
	if (begin == nullptr)
		return cstring_to_text("");
	begin++;
	end = static_cast<const char *>(memchr(begin, '-', static_cast<size_t>(limit - begin)));
	return cstring_to_text_with_len(begin, static_cast<int>((end != nullptr ? end : limit) - begin));
}

} // namespace outbox
