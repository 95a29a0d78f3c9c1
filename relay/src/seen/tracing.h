// Spans of deliveries, sent to a collector by OTLP over HTTP.
//
// Guarantees: publishing never waits for a collector. Spans are sent in batches; while the collector is away, and when
// too many wait, they are dropped and counted. A message whose parent is not sampled makes no span.
#pragma once

#include "core/trace.h"
#include "seen/metrics.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace relay {

struct TracingSettings {
	std::string endpoint; // http://127.0.0.1:4318/v1/traces; empty: no spans, traceparent is passed on as it is
	std::map<std::string, std::string> headers; // of the request; values may be secrets
	std::string service = "outbox-relay";
	bool operator==(const TracingSettings &) const = default;
};

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

class Tracer {
public:
	Tracer(TracingSettings settings, Metrics &metrics);
	~Tracer(); // sends what waits, for at most a second
	[[nodiscard]] bool on() const;
	void ended(Span span);

private:
	struct Sender;
	std::unique_ptr<Sender> sender;
};

} // namespace relay
