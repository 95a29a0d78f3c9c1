// The tables of the extension outbox_saga, as the install script makes them.
//
// Guarantees: those of rows/table.h. A row that was read is written back as a whole, with what it does not know.
#pragma once

#include "rows/call.h"

namespace outbox {

namespace definitions_col {
enum { saga_type, version, audit, created_at, created_by };
}
namespace definition_steps_col {
enum {
	saga_type,
	version,
	step_no,
	stage,
	name,
	command,
	queue,
	compensation,
	timeout,
	answer,
	max_attempts,
	parallel_group
};
}
namespace instances_col {
enum {
	id,
	saga_type,
	correlation_id,
	state,
	status,
	current_step,
	version,
	last_error,
	retry_count,
	deadline,
	definition_version,
	created_at,
	updated_at,
	completed_at
};
}
namespace runs_col {
enum { saga_id, saga_type, idempotency_key, headers };
}
namespace steps_col {
enum {
	saga_id,
	step_no,
	step,
	status,
	command_id,
	compensation_id,
	rounds,
	result,
	error,
	deadline,
	sent_at,
	answered_at,
	compensated_at,
	gave_up_at
};
}
namespace audit_log_col {
enum {
	saga_id,
	version,
	saga_type,
	event_type,
	step,
	old_status,
	new_status,
	old_state,
	new_state,
	user_id,
	trace_id,
	at,
	metadata
};
}

// Places in the shape of runs.
namespace runs_index {
enum { key = 1 };
}

extern const Shape definitions_shape;
extern const Shape definition_steps_shape;
extern const Shape instances_shape;
extern const Shape runs_shape;
extern const Shape steps_shape;
extern const Shape audit_log_shape;

// A row as it was read, in memory of its own.
struct StoredRow {
	ItemPointerData tid;
	Datum *values; // by attribute
	bool *nulls;
};
StoredRow copy_row(const Table *table, TupleTableSlot *slot);
// For set() and update_own_row().
TupleTableSlot *row_again(Table *table, const StoredRow *stored);

inline Datum
value_of(const Table *table, const StoredRow *row, int column, bool *isnull)
{
	int i = table->attno[column] - 1;

	*isnull = i < 0 || row->nulls[i];
	return *isnull ? static_cast<Datum>(0) : row->values[i];
}

inline text *
text_of(const Table *table, const StoredRow *row, int column)
{
	bool isnull;
	Datum value = value_of(table, row, column, &isnull);

	return isnull ? nullptr : DatumGetTextPP(value);
}

} // namespace outbox
