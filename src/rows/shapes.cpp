// See shapes.h.
//
// These definitions decide whether a column, a CHECK or an index belongs to the extension.
// Anything else is a user's and makes each call slower. The SQL is compared as the server parses
// it, so it need not look as the server prints it.

#include "rows/shapes.h"

namespace outbox {

namespace {

constexpr auto not_null = Column::not_null;
constexpr auto nullable = Column::nullable;
constexpr bool unchanging = true;
using Holds = OwnIndex::Holds;

// The last column of two tables in a test: newer than most of its databases. Elsewhere it ends the list.
#ifdef OUTBOX_STOP_POINTS
constexpr Column test_column = {"note", TEXTOID, nullable, false, Since::v0_2_0next};
#else
constexpr Column test_column;
#endif

} // namespace

// Its CHECKs are always evaluated, because it is rarely written to.
const Shape queues_shape = {
	"queues",
	{{"queue", TEXTOID, not_null},
	 {"max_attempts", INT4OID, nullable},
	 {"lease", INTERVALOID, not_null},
	 {"backoff_base", INTERVALOID, not_null},
	 {"backoff_cap", INTERVALOID, not_null},
	 {"backoff_jitter", FLOAT4OID, not_null},
	 {"repair_delay", INTERVALOID, not_null},
	 {"ordering", TEXTOID, not_null},
	 {"on_dead_head", TEXTOID, not_null},
	 {"validator", TEXTOID, nullable},
	 {"paused", BOOLOID, not_null},
	 {"max_in_flight", INT4OID, nullable},
	 {"created_at", TIMESTAMPTZOID, not_null},
	 {"validator_owner", TEXTOID, nullable},
	 {"payload_kind", TEXTOID, not_null},
	 {"max_releases", INT4OID, nullable},
	 {"rate_limit", FLOAT8OID, nullable},
	 {"rate_burst", INT4OID, nullable},
	 {"max_in_flight_per_key", INT4OID, nullable},
	 {"fair_by", TEXTOID, nullable},
	 {"priority_aging", INTERVALOID, nullable},
	 {"handler", TEXTOID, nullable},
	 {"handler_timeout", INTERVALOID, not_null},
	 {"handler_owner", TEXTOID, nullable},
	 {"dead_letter_queue", TEXTOID, nullable},
	 {"protect", JSONBOID, nullable},
	 {"reveal_on_claim", BOOLOID, not_null},
	 {"audit_events", BOOLOID, not_null},
	 test_column},
	{{"pkey", true, {"queue"}, nullptr}},
	{},
	{"merge_queue"},
};

const Shape messages_shape = {
	"messages",
	{{"outbox_id", UUIDOID, not_null},
	 {"queue", TEXTOID, not_null},
	 {"event_id", UUIDOID, not_null},
	 {"event_type", TEXTOID, not_null},
	 {"aggregate_type", TEXTOID, nullable},
	 {"aggregate_id", TEXTOID, nullable},
	 {"partition_key", TEXTOID, nullable},
	 {"sequence_id", INT8OID, nullable},
	 {"idempotency_key", TEXTOID, nullable},
	 {"routing_key", TEXTOID, nullable},
	 {"priority", INT2OID, not_null},
	 {"max_attempts", INT4OID, nullable},
	 {"payload", JSONBOID, nullable},
	 {"headers", JSONBOID, not_null},
	 {"replay_of", UUIDOID, nullable},
	 {"created_at", TIMESTAMPTZOID, not_null},
	 {"payload_bytes", BYTEAOID, nullable},
	 {"content_type", TEXTOID, nullable}},
	{{"pkey", true, {"outbox_id"}, nullptr}},
	{{"messages_one_payload", "(payload IS NULL) <> (payload_bytes IS NULL)"}},
	{},
};

const Shape attempts_shape = {
	"attempts",
	{{"outbox_id", UUIDOID, not_null},
	 {"attempt_no", INT4OID, not_null},
	 {"state", InvalidOid, not_null},
	 {"worker_id", TEXTOID, nullable},
	 {"lease_token", UUIDOID, nullable},
	 {"claimed_at", TIMESTAMPTZOID, nullable},
	 {"completed_at", TIMESTAMPTZOID, nullable},
	 {"reference", TEXTOID, nullable},
	 {"response_code", TEXTOID, nullable},
	 {"error_code", TEXTOID, nullable},
	 {"error_message", TEXTOID, nullable},
	 {"latency_ms", INT4OID, nullable},
	 {"recorded_by", TEXTOID, nullable},
	 {"created_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"outbox_id", "attempt_no"}, nullptr},
	 {"one_terminal_per_outbox", true, {"outbox_id"}, "state IN ('DISPATCHED', 'FAILED')"},
	 {"failed", false, {"outbox_id"}, "state = 'FAILED'"}},
	{{"attempts_number", "attempt_no >= 1"},
	 {"attempts_completed_at", "(completed_at IS NOT NULL) = (state IN ('DISPATCHED', 'FAILED'))"}},
	{},
};

const Shape audit_events_shape = {
	"events",
	{{"event_id", UUIDOID, not_null},
	 {"event", TEXTOID, not_null},
	 {"at", TIMESTAMPTZOID, not_null},
	 {"queue", TEXTOID, nullable},
	 {"worker_id", TEXTOID, nullable},
	 {"actor", TEXTOID, not_null},
	 {"outbox_ids", UUIDARRAYOID, nullable},
	 {"attempt_nos", INT4ARRAYOID, nullable},
	 {"lease_expires_at", TIMESTAMPTZOID, nullable},
	 {"detail", JSONBOID, not_null}},
	{{"pkey", true, {"event_id"}, nullptr}},
	{},
	{},
};

const Shape pending_shape = {
	"pending",
	{{"outbox_id", UUIDOID, not_null, unchanging},
	 {"queue", TEXTOID, not_null, unchanging},
	 {"priority", INT2OID, not_null, unchanging},
	 {"partition_key", TEXTOID, nullable, unchanging},
	 {"sequence_id", INT8OID, nullable, unchanging},
	 {"attempt_count", INT4OID, not_null},
	 {"max_attempts", INT4OID, nullable, unchanging},
	 {"next_attempt_at", TIMESTAMPTZOID, not_null},
	 {"created_at", TIMESTAMPTZOID, not_null, unchanging},
	 {"claimed_by", TEXTOID, nullable},
	 {"claimed_at", TIMESTAMPTZOID, nullable},
	 {"lease_token", UUIDOID, nullable},
	 {"lease_expires_at", TIMESTAMPTZOID, nullable},
	 {"release_count", INT4OID, not_null},
	 {"held_back", BOOLOID, not_null},
	 {"fair_key", INT8OID, nullable, unchanging},
	 test_column},
	{{"pkey", true, {"outbox_id"}, nullptr},
	 {"due", false, {"queue", "priority DESC", "GREATEST(next_attempt_at, lease_expires_at)"}, "NOT held_back"},
	 {"lease",
	  false,
	  {"lease_expires_at", "claimed_by"},
	  "claimed_by IS NOT NULL OR claimed_at IS NOT NULL OR lease_expires_at IS NOT NULL",
	  {{Holds::if_set, pending_col::lease_expires_at}}},
	 {"key_sequence",
	  true,
	  {"outbox.key_digest(queue, partition_key)", "sequence_id"},
	  "sequence_id IS NOT NULL",
	  {{Holds::if_set, pending_col::sequence_id}}},
	 {"held_back", false, {"queue"}, "held_back", {{Holds::if_true, pending_col::held_back}}},
	 {"fair",
	  false,
	  {"priority DESC", "fair_key", "next_attempt_at"},
	  "fair_key IS NOT NULL AND NOT held_back AND lease_expires_at IS NULL",
	  {{Holds::if_set, pending_col::fair_key},
	   {Holds::if_false, pending_col::held_back},
	   {Holds::if_unset, pending_col::lease_expires_at}}},
	 {"fair_lease",
	  false,
	  {"fair_key"},
	  "fair_key < 0 AND lease_expires_at IS NOT NULL",
	  {{Holds::if_negative, pending_col::fair_key}, {Holds::if_set, pending_col::lease_expires_at}}}},
	{{"pending_lease_is_whole", "num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) IN (0, 4)"},
	 {"pending_priority", "priority BETWEEN 0 AND 15"},
	 {"pending_release_count", "release_count >= 0"},
	 {"pending_times_are_finite", "isfinite(next_attempt_at) AND isfinite(created_at) AND isfinite(claimed_at) AND "
								  "isfinite(lease_expires_at)"},
	 {"pending_held_back_has_number", "NOT held_back OR sequence_id IS NOT NULL"}},
	{"pending_changed", "pending_changing"},
};

const Shape idempotency_keys_shape = {
	"idempotency_keys",
	{{"digest", BYTEAOID, not_null}, {"queue", TEXTOID, not_null}, {"outbox_id", UUIDOID, not_null}},
	{{"pkey", true, {"digest"}, nullptr}},
	{},
	{},
};

const Shape key_numbers_shape = {
	"key_numbers",
	{{"digest", BYTEAOID, not_null},
	 {"upto", INT8OID, not_null},
	 {"queue", TEXTOID, not_null},
	 {"partition_key", TEXTOID, not_null},
	 {"outbox_id", UUIDOID, not_null}},
	{{"pkey", true, {"digest", "upto"}, nullptr}},
	{},
	{},
};

const Shape replays_shape = {
	"replays",
	{{"outbox_id", UUIDOID, not_null}, {"replay_id", UUIDOID, not_null}, {"created_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"outbox_id"}, nullptr}},
	{},
	{},
};

const Shape dead_shape = {
	"dead",
	{{"outbox_id", UUIDOID, not_null},
	 {"queue", TEXTOID, not_null},
	 {"died_at", TIMESTAMPTZOID, not_null},
	 {"acknowledged_at", TIMESTAMPTZOID, nullable},
	 {"acknowledged_by", TEXTOID, nullable},
	 {"reason", TEXTOID, nullable}},
	{{"pkey", true, {"outbox_id"}, nullptr}, {"open", false, {"queue"}, "acknowledged_at IS NULL"}},
	{{"dead_acknowledgement_is_whole", "num_nulls(acknowledged_at, acknowledged_by, reason) IN (0, 3)"}},
	{},
};

const Shape retired_numbers_shape = {
	"retired_numbers",
	{{"outbox_id", UUIDOID, not_null}, {"sequence_id", INT8OID, not_null}},
	{{"pkey", true, {"outbox_id"}, nullptr}},
	{},
	{},
};

const Shape key_marks_shape = {
	"key_marks",
	{{"mark_id", UUIDOID, not_null},
	 {"digest", BYTEAOID, not_null},
	 {"queue", TEXTOID, not_null},
	 {"partition_key", TEXTOID, not_null},
	 {"kind", TEXTOID, not_null},
	 {"sequence_id", INT8OID, not_null},
	 {"outbox_id", UUIDOID, nullable},
	 {"created_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"mark_id"}, nullptr},
	 {"key", false, {"queue", "digest"}, nullptr},
	 {"drained", false, {"queue", "digest"}, "kind = 'drained'"}},
	{{"key_marks_kind", "kind IN ('drained', 'gap', 'blocked')"}},
	nullptr,
};

const Shape rate_spending_shape = {
	"rate_spending",
	{{"queue", TEXTOID, not_null}, {"spent_until", INT8OID, not_null}, {"started_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"queue"}, nullptr}},
	{},
	nullptr,
};

const Shape subject_hash_key_shape = {
	"subject_hash_key",
	{{"one", BOOLOID, not_null},
	 {"key_id", TEXTOID, not_null},
	 {"wrapped", BYTEAOID, not_null},
	 {"lineage", TEXTOID, not_null},
	 {"created_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"one"}, nullptr}},
	{{"subject_hash_key_is_one_row", "one"}},
	{},
};

const Shape subject_keys_shape = {
	"subject_keys",
	{{"subject_hash", BYTEAOID, not_null},
	 {"sid", UUIDOID, not_null},
	 {"key_id", TEXTOID, not_null},
	 {"wrapped", BYTEAOID, not_null},
	 {"created_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"subject_hash"}, nullptr}, {"sid", true, {"sid"}, nullptr}},
	{},
	{},
};

const Shape subjects_shape = {
	"subjects",
	{{"sid", UUIDOID, not_null}, {"subject_hash", BYTEAOID, not_null}, {"created_at", TIMESTAMPTZOID, not_null}},
	{{"pkey", true, {"sid"}, nullptr}, {"subject", false, {"subject_hash"}, nullptr}},
	{},
	{},
};

const Shape erasures_shape = {
	"erasures",
	{{"certificate", UUIDOID, not_null},
	 {"subject_hash", BYTEAOID, not_null},
	 {"sid", UUIDOID, nullable},
	 {"reason", TEXTOID, not_null},
	 {"requested_by", TEXTOID, not_null},
	 {"erased_by", TEXTOID, not_null},
	 {"erased_at", TIMESTAMPTZOID, not_null},
	 {"messages", INT8OID, not_null},
	 {"seal_no", INT8OID, nullable}},
	{{"pkey", true, {"certificate"}, nullptr},
	 {"sid", false, {"sid"}, "sid IS NOT NULL", {{Holds::if_set, erasures_col::sid}}},
	 {"subject", false, {"subject_hash"}, nullptr}},
	{},
	{},
};

const Shape subject_messages_shape = {
	"subject_messages",
	{{"sid", UUIDOID, not_null}, {"outbox_id", UUIDOID, not_null}},
	{{"pkey", true, {"sid", "outbox_id"}, nullptr}, {"message", false, {"outbox_id"}, nullptr}},
	{},
	{},
};

const Shape *const all_shapes[shapes] = {
	&queues_shape,           &messages_shape,         &attempts_shape,     &pending_shape,         &replays_shape,
	&idempotency_keys_shape, &key_numbers_shape,      &dead_shape,         &retired_numbers_shape, &key_marks_shape,
	&rate_spending_shape,    &subject_hash_key_shape, &subject_keys_shape, &subjects_shape,        &erasures_shape,
	&subject_messages_shape, &audit_events_shape};

} // namespace outbox
