// See time_limit.h.

#include "server/time_limit.h"

namespace outbox {

namespace {

constexpr int again_ms = 1000;

volatile sig_atomic_t over;

TimeoutId
our_timeout()
{
	static TimeoutId id = MAX_TIMEOUTS;

	if (id == MAX_TIMEOUTS)
		id = RegisterTimeout(USER_TIMEOUT, [] {
			over = true;
			InterruptPending = true;
			QueryCancelPending = true;
		});
	return id;
}

} // namespace

void
begin_time_limit(int64 us)
{
	TimestampTz now = GetCurrentTimestamp();

	over = false;
	enable_timeout_every(our_timeout(), us < DT_NOEND - now ? now + us : DT_NOEND - 1, again_ms);
}

bool
end_time_limit()
{
	disable_timeout(our_timeout(), false);
	if (over)
		QueryCancelPending = false;
	return over;
}

bool
is_time_over()
{
	return over;
}

} // namespace outbox
