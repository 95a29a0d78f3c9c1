// Spans of deliveries, sent to a collector by OTLP over HTTP.
//
// Guarantees: publishing never waits for a collector. Spans are sent in batches; while the collector is away, and when
// too many wait, they are dropped and counted. A message whose parent is not sampled makes no span.
#pragma once

#include "seen/metrics.h"
#include "seen/span.h"

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
