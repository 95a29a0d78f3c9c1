// What the health checks and the status page show: the newest state of each source and sink.
//
// Guarantees: a snapshot is consistent for each entry; a reader never waits for a database or a broker. Sources
// and sinks write when something changes, and at most each second.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace relay {

struct QueueState { // a row of outbox.status
	std::string queue;
	int64_t due = 0, leased = 0, scheduled = 0, dead = 0, expired = 0;
	double oldest_due_seconds = 0;
	bool paused = false;
	int64_t blocked_keys = 0;
};

struct SourceState {
	bool connected = false, listening = false;
	std::optional<std::chrono::steady_clock::time_point> last_claim; // that was answered
	std::chrono::milliseconds poll_interval{1000};
	size_t in_flight = 0, unrecorded = 0;           // unrecorded: outcomes that wait for the database
	std::string problem;                            // why it is not connected, or what it may not read
	std::vector<QueueState> queues;                 // empty if the role may not read outbox.status
	uint64_t claimed = 0, accepted = 0, failed = 0; // since the start
	// Why it does not work: not connected, not listening, its last claim too old; empty if it does.
	[[nodiscard]] std::string trouble() const;
};

struct SinkError {
	std::chrono::system_clock::time_point at;
	std::string code, text;
};

struct EndpointState {
	std::string endpoint;                           // empty: the sink as a whole
	std::string breaker;                            // closed, open, half open
	std::chrono::system_clock::time_point probe_at; // if open
};

struct SinkState {
	std::string type;
	size_t in_hand = 0, waiting = 0, max_in_flight = 0;
	bool blocked = false;
	uint64_t accepted = 0, refused = 0, try_again = 0, away = 0; // since the start
	std::vector<EndpointState> endpoints;                        // those that are not closed; none: all is well
	std::deque<SinkError> errors;                                // newest first, at most 5
	[[nodiscard]] bool up() const;                               // unless the sink as a whole is open
};

class Board {
public:
	void put(const std::string &name, SourceState state);
	void put(const std::string &name, SinkState state);
	void remove_source(const std::string &name);
	void remove_sink(const std::string &name);

	[[nodiscard]] std::map<std::string, SourceState> sources() const;
	[[nodiscard]] std::map<std::string, SinkState> sinks() const;

	// What was wrong with the configuration when it was read again last; empty: nothing.
	void configuration(std::string problem);

	// Sources read outbox.status only while the page is being looked at.
	void looked();
	[[nodiscard]] bool watched() const; // in the last minute

	// For /health/ready: whether at least one source works (connected, listening, its last claim younger than three
	// polls) and at least one sink is not away. `problem` has a line for each that does not, also when the answer is
	// yes: one tenant's database that is down must not take the relay out of service for the others. Nor must a
	// configuration that was refused.
	[[nodiscard]] bool ready(std::string &problem) const;

private:
	mutable std::mutex mutex;
	std::map<std::string, SourceState> my_sources;
	std::map<std::string, SinkState> my_sinks;
	std::string my_configuration;
	std::optional<std::chrono::steady_clock::time_point> last_look;
};

} // namespace relay
