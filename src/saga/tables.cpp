// See tables.h.

#include "saga/tables.h"

namespace outbox {

namespace {

constexpr auto not_null = Column::not_null;
using Holds = OwnIndex::Holds;

constexpr char is_open_saga[] = "status IN ('started', 'running', 'compensating')";

} // namespace

const Shape definitions_shape = {
	"definitions",
	{{"saga_type", TEXTOID, not_null},
	 {"version", INT4OID, not_null},
	 {"audit", TEXTOID, not_null},
	 {"created_at", TIMESTAMPTZOID, not_null},
	 {"created_by", TEXTOID, not_null}},
	{{"pkey", true, {"saga_type", "version"}, nullptr}},
	{},
	{},
	"saga",
};

const Shape definition_steps_shape = {
	"definition_steps",
	{{"saga_type", TEXTOID, not_null},
	 {"version", INT4OID, not_null},
	 {"step_no", INT4OID, not_null},
	 {"stage", INT4OID, not_null},
	 {"name", TEXTOID, not_null},
	 {"command", TEXTOID, not_null},
	 {"queue", TEXTOID, not_null},
	 {"compensation", TEXTOID},
	 {"timeout", INTERVALOID},
	 {"answer", TEXTOID, not_null},
	 {"max_attempts", INT4OID},
	 {"parallel_group", TEXTOID}},
	{{"pkey", true, {"saga_type", "version", "step_no"}, nullptr}},
	{},
	{},
	"saga",
};

// What has ended has completed_at, by a CHECK.
const Shape instances_shape = {
	"instances",
	{{"id", UUIDOID, not_null},
	 {"saga_type", TEXTOID, not_null},
	 {"correlation_id", UUIDOID},
	 {"state", JSONBOID, not_null},
	 {"status", TEXTOID, not_null},
	 {"current_step", TEXTOID},
	 {"version", INT8OID, not_null},
	 {"last_error", TEXTOID},
	 {"retry_count", INT4OID, not_null},
	 {"deadline", TIMESTAMPTZOID},
	 {"definition_version", INT4OID},
	 {"created_at", TIMESTAMPTZOID, not_null},
	 {"updated_at", TIMESTAMPTZOID, not_null},
	 {"completed_at", TIMESTAMPTZOID}},
	{{"pkey", true, {"id"}, nullptr},
	 {"open_type", false, {"saga_type", "status"}, is_open_saga, {{Holds::if_unset, instances_col::completed_at}}},
	 {"correlation",
	  false,
	  {"correlation_id"},
	  "correlation_id IS NOT NULL",
	  {{Holds::if_set, instances_col::correlation_id}}},
	 {"open_updated", false, {"updated_at"}, is_open_saga, {{Holds::if_unset, instances_col::completed_at}}},
	 {"waiting_again",
	  false,
	  {"updated_at"},
	  "completed_at IS NOT NULL AND current_step IS NOT NULL AND definition_version IS NOT NULL",
	  {{Holds::if_set, instances_col::completed_at},
	   {Holds::if_set, instances_col::current_step},
	   {Holds::if_set, instances_col::definition_version}}}},
	{{"instances_status", "status IN ('started', 'running', 'compensating', 'completed', 'failed')"},
	 {"instances_end", "(completed_at IS NOT NULL) = (status IN ('completed', 'failed'))"}},
	{},
	"saga",
};

const Shape runs_shape = {
	"runs",
	{{"saga_id", UUIDOID, not_null},
	 {"saga_type", TEXTOID, not_null},
	 {"idempotency_key", TEXTOID},
	 {"headers", JSONBOID, not_null}},
	{{"pkey", true, {"saga_id"}, nullptr},
	 {"key",
	  true,
	  {"saga_type", "idempotency_key"},
	  "idempotency_key IS NOT NULL",
	  {{Holds::if_set, runs_col::idempotency_key}}}},
	{},
	{},
	"saga",
};

const Shape steps_shape = {
	"steps",
	{{"saga_id", UUIDOID, not_null},
	 {"step_no", INT4OID, not_null},
	 {"step", TEXTOID, not_null},
	 {"status", TEXTOID, not_null},
	 {"command_id", UUIDOID, not_null},
	 {"compensation_id", UUIDOID},
	 {"rounds", INT4OID, not_null},
	 {"result", JSONBOID},
	 {"error", TEXTOID},
	 {"deadline", TIMESTAMPTZOID},
	 {"sent_at", TIMESTAMPTZOID, not_null},
	 {"answered_at", TIMESTAMPTZOID},
	 {"compensated_at", TIMESTAMPTZOID},
	 {"gave_up_at", TIMESTAMPTZOID}},
	{{"pkey", true, {"saga_id", "step_no"}, nullptr},
	 {"uncompensated", false, {"saga_id"}, "gave_up_at IS NOT NULL", {{Holds::if_set, steps_col::gave_up_at}}}},
	{{"steps_status",
	  "status IN ('sent', 'succeeded', 'failed', 'unknown', 'compensating', 'compensated', 'uncompensated')"},
	 {"steps_gave_up", "(gave_up_at IS NOT NULL) = (status = 'uncompensated')"}},
	{},
	"saga",
};

const Shape audit_log_shape = {
	"audit_log",
	{{"saga_id", UUIDOID, not_null},
	 {"version", INT8OID, not_null},
	 {"saga_type", TEXTOID, not_null},
	 {"event_type", TEXTOID, not_null},
	 {"step", TEXTOID},
	 {"old_status", TEXTOID},
	 {"new_status", TEXTOID, not_null},
	 {"old_state", JSONBOID},
	 {"new_state", JSONBOID},
	 {"user_id", TEXTOID, not_null},
	 {"trace_id", TEXTOID},
	 {"at", TIMESTAMPTZOID, not_null},
	 {"metadata", JSONBOID, not_null}},
	{{"pkey", true, {"saga_id", "version"}, nullptr}, {"user", false, {"user_id", "at"}, nullptr}},
	{{"audit_log_event_type", "event_type IN ('created', 'state_changed', 'step_executed', 'compensated', "
							  "'compensation_failed', 'failed', 'completed')"}},
	{},
	"saga",
};

StoredRow
copy_row(const Table *table, TupleTableSlot *slot)
{
	TupleDesc desc = RelationGetDescr(table->rel);
	Size natts = static_cast<Size>(desc->natts);
	StoredRow row;

	row.tid = slot->tts_tid;
	row.values = static_cast<Datum *>(palloc(natts * (sizeof(Datum) + sizeof(bool))));
	row.nulls = reinterpret_cast<bool *>(row.values + natts);
	heap_deform_tuple(ExecCopySlotHeapTuple(slot), desc, row.values, row.nulls);
	return row;
}

TupleTableSlot *
row_again(Table *table, const StoredRow *stored)
{
	TupleTableSlot *row = changed_row(table);
	Size natts = static_cast<Size>(row->tts_tupleDescriptor->natts);

	memcpy(row->tts_values, stored->values, natts * sizeof(Datum));
	memcpy(row->tts_isnull, stored->nulls, natts * sizeof(bool));
	return row;
}

} // namespace outbox
