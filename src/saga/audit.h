// A version of a saga, and its row in the audit log, which is never changed.
#pragma once

#include "core/saga.h"
#include "saga/tables.h"

namespace outbox {

struct Instance {
	core::Uuid id;
	text *saga_type;
	bool has_correlation;
	core::Uuid correlation_id;
	Datum state; // as it is stored
	core::SagaStatus status;
	text *current_step; // nullptr = none
	int64 version;
	text *last_error; // nullptr = none
	int32 retry_count;
	bool has_deadline;
	TimestampTz deadline;
	int32 definition_version; // 0 = the saga is only stored
	TimestampTz created_at;
	TimestampTz updated_at;
	bool has_end;
	TimestampTz completed_at;
};

// One change, for the audit log.
struct Change {
	const char *event_type;
	const text *step;     // nullptr = none
	Jsonb *metadata;      // nullptr = {}
	const text *trace_id; // nullptr = none
	bool only_changes;    // instead of whole states
};

struct AuditRow {
	const Instance *was; // nullptr: it is new
	const Instance *becomes;
	Change change;
};

void write_audit(Call *call, const AuditRow *rows, int count);

// The trace id in the header traceparent; nullptr if there is none.
text *trace_id_in(Jsonb *headers);

} // namespace outbox
