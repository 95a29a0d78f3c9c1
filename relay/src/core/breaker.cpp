#include "core/breaker.h"

#include <algorithm>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr auto least = 1000ms, most = 60'000ms;

} // namespace

std::string_view
Breaker::name() const
{
	switch (my_state)
	{
		case State::closed:
			return "closed";
		case State::open:
			return "open";
		case State::probing:
			return "open";
		case State::half_open:
			return "half open";
	}
	return "closed";
}

bool
Breaker::away(Clock::time_point now, double chance)
{
	if (my_state == State::open || my_state == State::probing)
		return false; // another message of the same outage
	open(now, chance);
	return true;
}

void
Breaker::answered()
{
	if (my_state == State::closed || my_state == State::half_open)
	{
		my_state = State::closed;
		pause = 0ms;
	}
}

void
Breaker::probed(bool reached, Clock::time_point now, double chance)
{
	if (reached)
		my_state = State::half_open;
	else
		open(now, chance);
}

void
Breaker::open(Clock::time_point now, double chance)
{
	pause = pause == 0ms ? least : std::min<std::chrono::milliseconds>(pause * 2, most);
	my_state = State::open;
	my_probe_at = now + std::chrono::milliseconds(static_cast<int64_t>(pause.count() * (0.5 + chance / 2)));
}

} // namespace relay
