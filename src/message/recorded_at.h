// The time of a record: created_at of messages and attempts, and at of audit events.
//
// Guarantee: the transaction has its id before the floor and the clock are read, so that a window of time that was
// sealed gets no record later (commit/record_floor.h, seals/closing.h).
#pragma once

#include "commit/record_floor.h"

namespace outbox {

// clock: what the clock said, or nullptr.
inline TimestampTz
record_time(TimestampTz *clock = nullptr)
{
	return time_above_floor(clock);
}

} // namespace outbox
