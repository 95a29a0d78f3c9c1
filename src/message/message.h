// A message on its way into the tables.
#pragma once

#include "message/queue.h"

namespace outbox {

struct Message {
	// arguments; nullptr and 0 mean none
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
	text *leased_to; // leased to this worker from the beginning
	int64 lease_us;
	bool is_replay; // event_id is kept, but is no key
	core::Uuid replay_of;
	bool is_notice; // of a dead letter
	int element;    // its place in a batch, from 1; 0 = no batch

	// results
	core::Uuid id;
	TimestampTz due_at;
	bool has_sequence;
	int64 sequence_id;
	bool created;
	bool held_back;
	int64 fair_key;         // in a fair queue
	core::Uuid lease_token; // when leased
	TimestampTz lease_expires_at;
};

// Checks the ranges and forms of the arguments: 22023.
void check_message(const Message *message);
// Each alone. name: of the argument.
void check_priority(int priority);
void check_due_time(TimestampTz time, const char *name);

// Checks the settings of the queue, except its validator: 22023.
void check_payload_kind(const Queue *queue, const Message *message);

} // namespace outbox
