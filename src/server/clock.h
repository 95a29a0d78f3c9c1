// Clocks, pauses and waiting for the latch of this process.
#pragma once

#include "server/pg.h"

namespace outbox {

// A pause that grows with failures in a row, microseconds.
int64 pause_us(int failures);

// A clock that never steps, microseconds.
inline int64
steady_us()
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	return static_cast<int64>(INSTR_TIME_GET_MICROSEC(now));
}

// Milliseconds, rounded up so that nothing wakes too early; at most an hour, so that they fit into
// the type of timeouts.
inline long
whole_ms(int64 us)
{
	return static_cast<long>((Min(us, USECS_PER_HOUR) + 999) / 1000);
}

// Waits until this process's latch is set or us have passed; less than 0 = without limit. The
// caller processes interrupts.
void wait_for_latch(int64 us);

} // namespace outbox
