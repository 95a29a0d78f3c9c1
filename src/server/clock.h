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

// The same in milliseconds, rounded up so as not to wake too early; an hour at most, which
// the timeouts' type can hold.
inline long
whole_ms(int64 us)
{
	return static_cast<long>((Min(us, USECS_PER_HOUR) + 999) / 1000);
}

// Until this process' latch is set, or us have passed; less than 0 = no end. Interrupts are
// left to the caller.
void wait_for_latch(int64 us);

} // namespace outbox
