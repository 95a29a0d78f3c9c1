// A message as a claim returns it.
//
// Guarantees: what PostgreSQL printed is kept as it is, payload and headers as text, so that a sink sends
// byte for byte what the database holds. Nothing here knows a database or a sink.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace relay {

using Text = std::optional<std::string>;

struct Message {
	std::string outbox_id, queue, event_id, event_type;
	Text aggregate_type, aggregate_id, partition_key, idempotency_key, routing_key;
	std::optional<int64_t> sequence_id;
	int priority = 0;
	int attempt = 1; // the try that begins with this claim
	Text payload;    // JSON; exactly one of the two payloads is there
	Text payload_bytes;
	Text content_type;          // of payload_bytes
	std::string headers = "{}"; // a JSON object
	std::chrono::sys_time<std::chrono::microseconds> created_at;
};

} // namespace relay
