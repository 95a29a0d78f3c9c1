// The configuration, read and checked as a whole.
//
// Guarantees: read_config() either gives a configuration in which every name that is used exists and every value is in
// range, or throws one ConfigError that says what is wrong and where. It connects to nothing.
#pragma once

#include "config/sink_config.h"
#include "toml/section.h"
#include "core/route.h"
#include "seen/log.h"
#include "seen/tracing.h"
#include "sinks/registry.h"
#include "sinks/sink.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace relay {

struct SourceSettings {
	std::string name;
	Secret dsn;                                 // a connection string or URI of libpq; it may hold a password
	std::vector<std::string> queues{"default"}; // "*": all, which needs outbox_readonly
	std::vector<int64_t> weights;               // none, or one a queue
	size_t batch = 500, max_in_flight = 2000;
	std::chrono::milliseconds poll_interval{1000};
	std::optional<std::chrono::milliseconds> lease; // else the queue's
	bool database_metrics = false;
	bool operator==(const SourceSettings &) const = default;
};

struct Config {
	std::string listen = "127.0.0.1:9188"; // empty: none
	std::string worker_id;                 // default: outbox-relay HOST:PID
	std::chrono::milliseconds grace{25'000};
	LogSettings log;
	TracingSettings tracing;
	std::vector<SourceSettings> sources;
	std::map<std::string, SinkConfig> sinks;
	std::shared_ptr<const Routes> routes;
};

Config read_config(const std::string &file);

// Of a text and with these kinds of sinks, for tests.
Config parse_config(std::string_view text, std::span<const SinkKind> kinds, std::span<const std::string_view> missing);

} // namespace relay
