// The time of a record: created_at of messages and attempts, and at of audit events.
//
// Guarantee: the transaction has its id before the clock is read. A reader that reads the clock first, and lists the
// running transactions after that, knows the writer of each record whose time lies before its reading.
#pragma once

#include "server/pg.h"

namespace outbox {

inline TimestampTz
record_time()
{
	GetTopTransactionId();
	return GetCurrentTimestamp();
}

} // namespace outbox
