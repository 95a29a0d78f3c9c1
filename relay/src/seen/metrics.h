// The counters of the relay, in the names that docs/metrics.md lists, and those of its databases as they gave them.
//
// Guarantees: any thread may count; counting never fails, blocks on no I/O, and costs some tens of nanoseconds. At most
// 200 values of event_type are told apart, the rest is "other".
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace relay {

class Metrics {
public:
	using Duration = std::chrono::duration<double>;

	Metrics();
	~Metrics();

	void claimed(std::string_view source, size_t messages);
	// Accepted by the sink: after `took` from the hand-over, `lag` from the commit.
	void published(std::string_view sink, std::string_view event_type, Duration took, Duration lag);
	void failed(std::string_view sink, std::string_view event_type,
				std::string_view reason);          // any try that was not accepted
	void dead_letter(std::string_view event_type); // the ledger has it as FAILED
	void unknown_code(std::string_view sink, std::string_view code);
	void batch(std::string_view source, Duration took); // one complete_batch or complete_and_claim
	void in_flight(std::string_view source, size_t messages);
	void sink_up(std::string_view sink, bool up);
	void breaker_open(std::string_view sink, Duration during); // adds
	void released(std::string_view source, size_t messages);
	void leases_lost(std::string_view source, size_t messages);
	void outcomes_unrecorded(std::string_view source, size_t messages);
	void notify_wakeup(std::string_view source);
	void poll_wakeup(std::string_view source);
	void source_up(std::string_view source, bool up);
	void spans_dropped(size_t spans);
	void reloaded(bool well); // the configuration
	// What outbox.prometheus() of the source's database said last; empty: it is not known.
	void database(std::string_view source, std::string text);

	// Gone from the configuration: its gauges end, its counters stay.
	void forget_source(std::string_view source);
	void forget_sink(std::string_view sink);

	[[nodiscard]] std::string exposition() const; // Prometheus' text format

private:
	struct Families;
	std::unique_ptr<Families> families;
};

} // namespace relay
