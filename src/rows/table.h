// Direct access to the extension's tables: no planner, no executor nodes.
//
// Guarantees, for every row written here:
//  - all indexes are kept up, user-made ones, partial and expression indexes
//    included; unique ones are enforced by the index itself;
//  - user-made columns get their defaults or generated values, NOT NULL and CHECK
//    hold, added or dropped columns are survived: columns are found by name;
//  - what cannot be honoured without the executor (triggers that would have to
//    fire, rules, row level security, deferrable or exclusion constraints) is
//    refused with 0A000 before anything is written;
//  - it all runs as the tables' owner in a security-restricted context, because a
//    user-made CHECK or index expression is somebody's code (index_code.h: by whose
//    names).
//
// The common case, a table just as the install script made it, pays for none of
// the checks that its own constraints would repeat.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

// The columns of each table, in the order the install script gives them.
namespace queues_col {
enum {
	queue,
	max_attempts,
	lease,
	backoff_base,
	backoff_cap,
	backoff_jitter,
	repair_delay,
	ordering,
	on_dead_head,
	validator,
	paused,
	max_in_flight,
	created_at
};
}
namespace messages_col {
enum {
	outbox_id,
	queue,
	event_id,
	event_type,
	aggregate_type,
	aggregate_id,
	partition_key,
	sequence_id,
	idempotency_key,
	routing_key,
	priority,
	max_attempts,
	payload,
	headers,
	replay_of,
	created_at
};
}
namespace attempts_col {
enum {
	outbox_id,
	attempt_no,
	state,
	worker_id,
	lease_token,
	claimed_at,
	completed_at,
	reference,
	response_code,
	error_code,
	error_message,
	latency_ms,
	recorded_by,
	created_at
};
}
namespace pending_col {
enum {
	outbox_id,
	queue,
	priority,
	partition_key,
	sequence_id,
	attempt_count,
	max_attempts,
	next_attempt_at,
	created_at,
	claimed_by,
	claimed_at,
	lease_token,
	lease_expires_at
};
}
namespace idempotency_keys_col {
enum { digest, queue, outbox_id };
}
namespace key_numbers_col {
enum { digest, upto, queue, partition_key, outbox_id };
}
namespace replays_col {
enum { outbox_id, replay_id, created_at };
}

namespace retired_numbers_col {
enum { outbox_id, sequence_id };
}

constexpr int max_columns = 16;

// As pg_get_indexdef writes it, with what follows the name of the table in two parts.
struct OwnIndex {
	bool unique;
	const char *keys;
	const char *predicate; // "" = none
};

// What the install script made; anything beyond is user-made.
struct Shape {
	const char *name;
	const char *columns[max_columns];
	Oid types[max_columns]; // InvalidOid: outbox.attempt_state
	int ncolumns;
	uint32 not_null;        // bit by column
	const char *checks[10]; // as pg_get_expr writes them; by another IntervalStyle those of
							// queues read otherwise, and are evaluated for nothing
	OwnIndex indexes[4];
	int nindexes;
	Oid own_trigger_events; // trigger events that our own triggers use
};

constexpr int shapes = 8;
extern const Shape queues_shape;
extern const Shape messages_shape;
extern const Shape attempts_shape;
extern const Shape pending_shape;
extern const Shape idempotency_keys_shape;
extern const Shape key_numbers_shape;
extern const Shape replays_shape;
extern const Shape retired_numbers_shape;

struct KnownTable;
struct Probe;

// What a table is opened for. Triggers that these would have to fire are refused.
enum Access : int { reads = 0, inserts = 1, updates = 2, deletes = 4 };

struct Table {
	const Shape *shape;
	Relation rel;
	EState *estate;
	AttrNumber attno[max_columns];
	int access;
	bool extended;              // user-made columns or checks
	uint64 foreign_indexes;     // bit by place in indexes, in place of ours or beside them
	ResultRelInfo *result_info; // when extended
	int nindexes;               // all of them when written to, else the one opened last
	Relation *indexes;
	IndexInfo **index_infos;
	Probe *id_probe; // or nullptr

	Datum get(TupleTableSlot *slot, int column, bool *isnull) const
	{
		return slot_getattr(slot, attno[column], isnull);
	}
};

// For a relation of that shape that the caller has locked and opened. The lock is kept
// until the end of the transaction. known is what known_table() says of it; if that is nothing
// and it is opened for writing, search_path must be pinned.
Table *wrap_table(const Shape &shape, Relation rel, int access, const KnownTable *known, EState *estate);
void close_table(Table *table);

// Refuses a table, or the parent of a leaf, with something that this access would have
// to honour and cannot.
void refuse_what_is_passed_over(const Shape &shape, Relation rel, int access);

// Somebody added columns, checks or indexes: a single row may be refused by them.
bool has_foreign_parts(const Table *table);

// outbox.attempt_state of the schema.
Oid attempt_state_type(Oid schema);

Relation primary_index(Table *table);
Relation named_index(Table *table, const char *name);

// A new row, all NULL, to be filled by set() and written by insert_rows.
TupleTableSlot *new_row(Table *table);
void set(const Table *table, TupleTableSlot *row, int column, Datum value);
void set_text(const Table *table, TupleTableSlot *row, int column, const text *value); // nullptr = NULL
void set_null(const Table *table, TupleTableSlot *row, int column);

// row->tts_tid is set. Rows are reusable afterwards.
void insert_rows(Table *table, TupleTableSlot **rows, int count);

// What became of an attempt to change a row.
enum class Changed {
	done,
	busy,    // another transaction holds it and we did not wait
	outdated // not changed: the row was, or we waited for it; look again
};

enum class Wait { never, for_row };

// Locks exactly that version, as an update would.
Changed hold_row(Table *table, ItemPointer tid, Wait wait);
Changed update_row(Table *table, ItemPointer tid, TupleTableSlot *row, Wait wait);
Changed delete_row(Table *table, ItemPointer tid, Wait wait);

} // namespace outbox
