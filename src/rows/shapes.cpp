// See table.h: the tables as the install script makes them.
//
// What is written here decides whose a column, a CHECK or an index is: what reads otherwise is
// somebody's own, and costs each call more.

#include "rows/shapes.h"

namespace outbox {

namespace {

constexpr uint32
bits(std::initializer_list<int> columns)
{
	uint32 result = 0;

	for (int column : columns)
		result |= uint32{1} << column;
	return result;
}

} // namespace

const Shape queues_shape = {
	"queues",
	{"queue", "max_attempts", "lease", "backoff_base", "backoff_cap", "backoff_jitter", "repair_delay", "ordering",
	 "on_dead_head", "validator", "paused", "max_in_flight", "created_at", "validator_owner", "payload_kind"},
	{TEXTOID, INT4OID, INTERVALOID, INTERVALOID, INTERVALOID, FLOAT4OID, INTERVALOID, TEXTOID, TEXTOID, TEXTOID,
	 BOOLOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID},
	15,
	bits({0, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}),
	{"((octet_length(queue) >= 1) AND (octet_length(queue) <= 63))", "(max_attempts >= 1)",
	 "(lease > '00:00:00'::interval)",
	 "((backoff_base >= '00:00:00'::interval) AND (backoff_cap >= '00:00:00'::interval))",
	 "((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision))",
	 "(repair_delay >= '00:00:00'::interval)", "(ordering = ANY (ARRAY['none'::text, 'numbered'::text]))",
	 "((validator <> ''::text) AND ((validator IS NULL) = (validator_owner IS NULL)))",
	 "(payload_kind = ANY (ARRAY['object'::text, 'any'::text]))",
	 "((on_dead_head = 'continue'::text) AND (max_in_flight IS NULL))"},
	{{true, "(queue)", ""}},
	1,
	"merge_queue"};
const Shape messages_shape = {"messages",
							  {"outbox_id", "queue", "event_id", "event_type", "aggregate_type", "aggregate_id",
							   "partition_key", "sequence_id", "idempotency_key", "routing_key", "priority",
							   "max_attempts", "payload", "headers", "replay_of", "created_at", "payload_bytes",
							   "content_type"},
							  {UUIDOID, TEXTOID, UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TEXTOID, TEXTOID,
							   INT2OID, INT4OID, JSONBOID, JSONBOID, UUIDOID, TIMESTAMPTZOID, BYTEAOID, TEXTOID},
							  18,
							  bits({0, 1, 2, 3, 10, 13, 15}),
							  {"((payload IS NULL) <> (payload_bytes IS NULL))"},
							  {{true, "(outbox_id)", ""}},
							  1,
							  nullptr};
const Shape attempts_shape = {
	"attempts",
	{"outbox_id", "attempt_no", "state", "worker_id", "lease_token", "claimed_at", "completed_at", "reference",
	 "response_code", "error_code", "error_message", "latency_ms", "recorded_by", "created_at"},
	{UUIDOID, INT4OID, InvalidOid, TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
	 INT4OID, TEXTOID, TIMESTAMPTZOID},
	14,
	bits({0, 1, 2, 13}),
	{"(attempt_no >= 1)", "((completed_at IS NOT NULL) = (state = ANY (ARRAY['DISPATCHED'::outbox.attempt_state, "
						  "'FAILED'::outbox.attempt_state])))"},
	{{true, "(outbox_id, attempt_no)", ""},
	 {true, "(outbox_id)",
	  " WHERE (state = ANY (ARRAY['DISPATCHED'::outbox.attempt_state, 'FAILED'::outbox.attempt_state]))"},
	 {false, "(outbox_id)", " WHERE (state = 'FAILED'::outbox.attempt_state)"}},
	3,
	nullptr};
const Shape pending_shape = {
	"pending",
	{"outbox_id", "queue", "priority", "partition_key", "sequence_id", "attempt_count", "max_attempts",
	 "next_attempt_at", "created_at", "claimed_by", "claimed_at", "lease_token", "lease_expires_at"},
	{UUIDOID, TEXTOID, INT2OID, TEXTOID, INT8OID, INT4OID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID,
	 TIMESTAMPTZOID, UUIDOID, TIMESTAMPTZOID},
	13,
	bits({0, 1, 2, 5, 7, 8}),
	{"(num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) = ANY (ARRAY[0, 4]))",
	 "((priority >= 0) AND (priority <= 15))",
	 "(isfinite(next_attempt_at) AND isfinite(created_at) AND isfinite(claimed_at) AND isfinite(lease_expires_at))"},
	{{true, "(outbox_id)", ""},
	 {false, "(queue, priority DESC, GREATEST(next_attempt_at, lease_expires_at))", ""},
	 {false, "(lease_expires_at, claimed_by)",
	  " WHERE ((claimed_by IS NOT NULL) OR (claimed_at IS NOT NULL) OR (lease_expires_at IS NOT NULL))"},
	 {true, "(outbox.key_digest(queue, partition_key), sequence_id)", " WHERE (sequence_id IS NOT NULL)"}},
	4,
	"pending_changed"};
const Shape idempotency_keys_shape = {"idempotency_keys",
									  {"digest", "queue", "outbox_id"},
									  {BYTEAOID, TEXTOID, UUIDOID},
									  3,
									  bits({0, 1, 2}),
									  {},
									  {{true, "(digest)", ""}},
									  1,
									  nullptr};
const Shape key_numbers_shape = {"key_numbers",
								 {"digest", "upto", "queue", "partition_key", "outbox_id"},
								 {BYTEAOID, INT8OID, TEXTOID, TEXTOID, UUIDOID},
								 5,
								 bits({0, 1, 2, 3, 4}),
								 {},
								 {{true, "(digest, upto)", ""}},
								 1,
								 nullptr};
const Shape replays_shape = {"replays",
							 {"outbox_id", "replay_id", "created_at"},
							 {UUIDOID, UUIDOID, TIMESTAMPTZOID},
							 3,
							 bits({0, 1, 2}),
							 {},
							 {{true, "(outbox_id)", ""}},
							 1,
							 nullptr};
const Shape dead_shape = {"dead",
						  {"outbox_id", "queue", "died_at", "acknowledged_at", "acknowledged_by", "reason"},
						  {UUIDOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID},
						  6,
						  bits({0, 1, 2}),
						  {"(num_nulls(acknowledged_at, acknowledged_by, reason) = ANY (ARRAY[0, 3]))"},
						  {{true, "(outbox_id)", ""}, {false, "(queue)", " WHERE (acknowledged_at IS NULL)"}},
						  2,
						  0};
const Shape retired_numbers_shape = {"retired_numbers",
									 {"outbox_id", "sequence_id"},
									 {UUIDOID, INT8OID},
									 2,
									 bits({0, 1}),
									 {},
									 {{true, "(outbox_id)", ""}},
									 1,
									 nullptr};

} // namespace outbox
