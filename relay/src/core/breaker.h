// The breaker of a sink, or of one endpoint of it.
//
// Guarantees: closed, everything passes. A failure that is the sink's fault opens it: nothing passes, and after a pause
// one probe asks whether the sink can be reached. If it can, the breaker is half open and lets one message pass;
// whatever the sink says of that message, unless it is away again, closes it. The pause doubles from 1 s to 1 min, with
// jitter, and starts over only after a message got through: a sink that answers probes and no messages is not asked
// more often for it.
//
// It is pure: the caller brings the time, and the chance for the jitter.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace relay {

class Breaker {
public:
	using Clock = std::chrono::steady_clock;
	enum class State { closed, open, probing, half_open };

	[[nodiscard]] State state() const { return my_state; }
	[[nodiscard]] bool closed() const { return my_state == State::closed; }
	[[nodiscard]] std::string_view name() const;

	// Whether one more message may be handed over, `in_hand` being there.
	[[nodiscard]] bool admits(size_t in_hand) const
	{
		return my_state == State::closed || (my_state == State::half_open && in_hand == 0);
	}

	// The sink is away. `chance` in [0, 1) makes the jitter. True if the breaker was not open before.
	bool away(Clock::time_point now, double chance);
	// The sink said anything else.
	void answered();

	[[nodiscard]] Clock::time_point probe_at() const { return my_probe_at; } // if open
	void probing() { my_state = State::probing; }
	void probed(bool reached, Clock::time_point now, double chance);

private:
	void open(Clock::time_point now, double chance);

	State my_state = State::closed;
	Clock::time_point my_probe_at{};
	std::chrono::milliseconds pause{0}; // the last one; 0: none since a message got through
};

} // namespace relay
