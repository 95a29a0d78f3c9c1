// A message on its way into the tables.
#pragma once

#include "message/queue.h"

namespace outbox {

struct Message {
	// asked; nullptr and 0 mean none
	text *event_type;
	Jsonb *payload;       // either this
	bytea *payload_bytes; // or that
	text *content_type;
	text *aggregate_type;
	text *aggregate_id;
	text *partition_key;
	text *idempotency_key;
	bool has_event_id;
	core::Uuid event_id;
	Jsonb *headers;
	text *routing_key;
	int priority;
	bool has_deliver_at;
	TimestampTz deliver_at;
	int max_attempts;
	text *leased_to; // born leased to this worker
	int64 lease_us;
	bool is_replay; // keeps event_id without it being a key
	core::Uuid replay_of;
	int element; // of a batch, from 1; 0 = of none

	// answered
	core::Uuid id;
	TimestampTz due_at;
	bool has_sequence;
	int64 sequence_id;
	bool created;
	core::Uuid lease_token; // when leased
	TimestampTz lease_expires_at;
};

// Range and form of what a producer gave: 22023.
void check_message(const Message *message);
// Of these alone. name: the argument's.
void check_priority(int priority);
void check_due_time(TimestampTz time, const char *name);

// What the settings of the queue refuse, apart from its validator: 22023.
void check_payload_kind(const Queue *queue, const Message *message);

} // namespace outbox
