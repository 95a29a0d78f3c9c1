// See clock.h.

#include "server/clock.h"

#include "core/backoff.h"

namespace outbox {

int64
pause_us(int failures)
{
	return core::backoff_us(100 * 1000, 60 * USECS_PER_SEC, failures);
}

void
wait_for_latch(int64 us)
{
	int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (us >= 0 ? WL_TIMEOUT : 0);

	WaitLatch(MyLatch, events, us >= 0 ? whole_ms(us) : -1L, extension_wait_event());
	ResetLatch(MyLatch);
}

} // namespace outbox
