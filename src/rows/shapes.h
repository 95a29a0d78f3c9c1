// The tables as the install script makes them.
#pragma once

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
	created_at,
	validator_owner,
	payload_kind
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
	created_at,
	payload_bytes,
	content_type
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

namespace dead_col {
enum { outbox_id, queue, died_at, acknowledged_at, acknowledged_by, reason };
}

namespace retired_numbers_col {
enum { outbox_id, sequence_id };
}

constexpr int max_columns = 24;

// What a table is opened for. Triggers that these would have to fire are refused.
enum Access : int { reads = 0, inserts = 1, updates = 2, deletes = 4 };

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
	const char *own_trigger; // that our own writing does without, and its function; or nullptr
};

constexpr int shapes = 9;
extern const Shape queues_shape;
extern const Shape messages_shape;
extern const Shape attempts_shape;
extern const Shape pending_shape;
extern const Shape idempotency_keys_shape;
extern const Shape key_numbers_shape;
extern const Shape replays_shape;
extern const Shape dead_shape;
extern const Shape retired_numbers_shape;

} // namespace outbox
