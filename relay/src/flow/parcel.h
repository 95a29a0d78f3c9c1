// A message between a source and an outlet, and its way back.
#pragma once

#include "core/answer.h"
#include "core/route.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

namespace relay {

using Clock = std::chrono::steady_clock;

// When a lease ends; a renewal moves it while the message waits elsewhere.
using LeaseEnd = std::atomic<Clock::time_point>;

struct Result {
	uint64_t number = 0;
	Verdict verdict = Verdict::untried;
	Answer answer{};
	Clock::time_point handed{}, answered{};
	std::string trace_id{};
	std::chrono::milliseconds delay{0}; // of what is untried: how long there is no sense in another try
};

// Where results go: a source. Any thread may call it.
class Results {
public:
	virtual void ended(Result result) = 0;
	// After some of them.
	virtual void flush() = 0;
	// A sink takes more, or less, than before.
	virtual void nudge() = 0;
	virtual ~Results() = default;
};

struct Parcel {
	uint64_t number = 0; // names it at its source
	std::shared_ptr<Results> results;
	std::shared_ptr<const Routes> routes; // keeps the route alive
	const Route *route = nullptr;
	std::unique_ptr<Delivery> delivery;        // its message; the outlet maps it
	std::shared_ptr<const LeaseEnd> lease_end; // not handed over after this
};

} // namespace relay
