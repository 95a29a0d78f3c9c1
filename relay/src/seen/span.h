// One delivery, as tracing has it.
#pragma once

#include "core/trace.h"

#include <chrono>
#include <string>

namespace relay {

struct Span {
	TraceContext parent, context;    // the message's traceparent, and ours that was sent on
	std::string destination, system; // system: kafka, rabbitmq, nats, http, postgresql
	std::string event_id, outbox_id, queue, key;
	std::string routing_key = {};    // of RabbitMQ, whose destination is the exchange
	std::string server_address = {}; // of the broker, where the sink knows it
	int server_port = 0;
	size_t body_size = 0;
	std::chrono::system_clock::time_point began, ended;
	std::string error; // the code; empty if accepted
};

} // namespace relay
