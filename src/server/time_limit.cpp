// See time_limit.h.
//
// Shape: a signal handler may not arm a timeout. So one fires each second from the beginning, and at the limit itself.

#include "server/time_limit.h"

#include "server/clock.h"

namespace outbox {

namespace {

constexpr int tick_ms = 1000;
constexpr int64 tick_us = tick_ms * 1000;
// The tick of the limit may come as much too early by the steady clock.
constexpr int64 slack_us = 1000;
constexpr int most_cancels = 3;

int64 limit; // steady clock
bool process_may_end;
volatile sig_atomic_t over;
volatile sig_atomic_t asked_to_stop;
volatile sig_atomic_t cancels;

// In a signal handler. A cancel can be caught by the code, the end of the process cannot.
void
cancel_again()
{
	if (cancels < most_cancels || !process_may_end)
		QueryCancelPending = true;
	else
		ProcDiePending = true;
	cancels = cancels + 1;
	InterruptPending = true;
}

void
at_tick()
{
	over = over || steady_us() + slack_us >= limit;
	if (over || asked_to_stop)
		cancel_again();
}

TimeoutId
our_timeout()
{
	static TimeoutId id = MAX_TIMEOUTS;

	if (id == MAX_TIMEOUTS)
		id = RegisterTimeout(USER_TIMEOUT, at_tick);
	return id;
}

} // namespace

void
begin_time_limit(int64 us, bool may_end_process)
{
	int64 now = steady_us();

	limit = us < PG_INT64_MAX - slack_us - now ? now + us : PG_INT64_MAX - slack_us;
	process_may_end = may_end_process;
	over = false;
	cancels = 0;
	enable_timeout_every(our_timeout(), GetCurrentTimestamp() + (us % tick_us != 0 ? us % tick_us : tick_us), tick_ms);
}

bool
end_time_limit()
{
	disable_timeout(our_timeout(), false);
	if (cancels > 0)
		QueryCancelPending = false;
	return over;
}

bool
is_time_over()
{
	return over;
}

void
stop_limited_code()
{
	asked_to_stop = true;
}

} // namespace outbox
