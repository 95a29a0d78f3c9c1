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
	payload_kind,
	max_releases,
	rate_limit,
	rate_burst,
	max_in_flight_per_key,
	fair_by,
	priority_aging,
	handler,
	handler_timeout,
	handler_owner,
	dead_letter_queue,
	protect,
	reveal_on_claim,
	audit_events
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
namespace audit_events_col {
enum { event_id, event, at, queue, worker_id, actor, outbox_ids, attempt_nos, lease_expires_at, detail };
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
	lease_expires_at,
	release_count,
	held_back,
	fair_key
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

namespace key_marks_col {
enum { mark_id, digest, queue, partition_key, kind, sequence_id, outbox_id, created_at };
}

namespace rate_spending_col {
enum { queue, spent_until, started_at };
}

namespace subject_hash_key_col {
enum { one, key_id, wrapped, lineage, created_at };
}

namespace subject_keys_col {
enum { subject_hash, sid, key_id, wrapped, created_at };
}

namespace subjects_col {
enum { sid, subject_hash, created_at };
}

namespace erasures_col {
enum { certificate, subject_hash, sid, reason, requested_by, erased_by, erased_at, messages, seal_no };
}

namespace subject_messages_col {
enum { sid, outbox_id };
}

constexpr int max_columns = 32;
constexpr int max_own_indexes = 8;
constexpr int max_own_checks = 6;

// The indexes of our own, in the order of their shape; the primary key is the first of each.
constexpr int primary_key = 0;
namespace attempts_index {
enum { one_terminal_per_outbox = 1, failed };
}
namespace dead_index {
enum { open = 1 };
}
namespace key_marks_index {
enum { key = 1, drained };
}
namespace subject_keys_index {
enum { sid = 1 };
}
namespace subjects_index {
enum { subject = 1 };
}
namespace erasures_index {
enum { sid = 1, subject };
}
namespace subject_messages_index {
enum { message = 1 };
}
namespace pending_index {
enum { due = 1, lease, key_sequence, held_back, fair, fair_lease };
}

// What a table is opened for. Triggers that this would fire are refused.
enum Access : int { reads = 0, inserts = 1, updates = 2, deletes = 4 };

// The version of the extension's SQL that added a column: from then on it must exist.
enum class Since {
	v0_2_0,
#ifdef OUTBOX_STOP_POINTS
	v0_2_0next, // what a test makes of it
#endif
};

struct Column {
	const char *name = nullptr; // ends the list
	Oid type = InvalidOid;      // InvalidOid: outbox.attempt_state
	enum Null { not_null, nullable } null = nullable;
	bool unchanging = false; // of a row of pending, from its insertion on
	Since since = Since::v0_2_0;
};

struct OwnCheck {
	const char *name;
	const char
		*condition; // nullptr: that of each table is another, and its name is the table's, an underscore and this
};

// A B-tree, whose name is the table's, an underscore and this.
struct OwnIndex {
	const char *name;
	bool unique;
	const char *keys[3]; // a column or an expression, and perhaps DESC
	const char *predicate;
	// What the predicate says, where columns tell: the index is opened only for rows that belong into it.
	struct Holds {
		enum When { if_evaluated, if_set, if_unset, if_true, if_false, if_negative } when = if_evaluated;
		int column = 0;
	} holds[3] = {};
};

// What the install script makes, in SQL. Anything else is a user's.
struct Shape {
	const char *name;
	Column columns[max_columns + 1];
	OwnIndex indexes[max_own_indexes + 1];
	OwnCheck checks[max_own_checks + 1]; // not evaluated when we write
	const char *own_triggers[2];         // not fired when we write; the first has the name of their function
	const char *schema = "outbox";
};

inline int
index_count(const Shape &shape)
{
	int n = 0;

	while (shape.indexes[n].name != nullptr)
		n++;
	return n;
}

constexpr int shapes = 17;
constexpr int other_shapes = 8; // of extensions beside the core, at most
extern const Shape *const all_shapes[shapes];
extern const Shape queues_shape;
extern const Shape messages_shape;
extern const Shape attempts_shape;
extern const Shape audit_events_shape;
extern const Shape pending_shape;
extern const Shape idempotency_keys_shape;
extern const Shape key_numbers_shape;
extern const Shape replays_shape;
extern const Shape dead_shape;
extern const Shape retired_numbers_shape;
extern const Shape key_marks_shape;
extern const Shape rate_spending_shape;
extern const Shape subject_hash_key_shape;
extern const Shape subject_keys_shape;
extern const Shape subjects_shape;
extern const Shape erasures_shape;
extern const Shape subject_messages_shape;

} // namespace outbox
