// The rates of the last 15 minutes.
//
// Guarantees: memory is bounded: 180 samples, five seconds apart, of the counters of each source and sink on the board.
// A rate is divided by the time that passed between its two samples, so that a late sample shows no peak. A
// counter that starts over (a source that was configured again) shows no negative rate.
#pragma once

#include "seen/board.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace relay {

// Events a second; oldest first, the newest last; nothing where it was not there yet.
using Rates = std::vector<std::optional<double>>;

struct SinkRates {
	Rates accepted, failed;
};

class History {
public:
	static constexpr size_t length = 180;
	static constexpr std::chrono::seconds interval{5};

	explicit History(const Board &board); // takes no samples by itself
	~History();

	void start(); // takes them each five seconds, on a thread of its own
	void sample(std::chrono::steady_clock::time_point now);

	// Of those that the newest sample has, `length` values each.
	[[nodiscard]] std::map<std::string, Rates> claimed() const; // by source
	[[nodiscard]] std::map<std::string, SinkRates> sinks() const;

private:
	struct Sample {
		std::chrono::steady_clock::time_point at;
		std::map<std::string, uint64_t> claimed, accepted, failed;
	};
	using Counts = std::map<std::string, uint64_t> Sample::*;

	[[nodiscard]] std::map<std::string, Rates> rates(Counts counts) const;

	const Board &board;
	mutable std::mutex mutex;
	std::condition_variable_any ended;
	std::deque<Sample> samples; // at most length + 1
	std::jthread thread;
};

} // namespace relay
