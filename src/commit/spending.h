// What has been leased of what a queue's rate_limit allows.
//
// Guarantees: a claim spends before it leases, so in any time t no more than rate_burst + rate_limit * t messages are
// leased, in however many sessions, other than those that a rollback gave back, also to a savepoint.
//
// Shape: a token bucket in one number (core/rate.h) under a lock that is held for a few loads and stores. It is empty
// when the queue gets its slot, so a restart allows nothing that was spent before. A session that could not get what it
// wanted leaves the time when there is more: the background worker takes it as it takes its other timers, and wakes
// those that wait.
#pragma once

#include "core/rate.h"
#include "server/pg.h"

namespace outbox {

struct Spending {
	slock_t lock;
	bool refused;             // a claim got less than it wanted
	core::Bucket bucket;      // steady clock, nanoseconds
	pg_atomic_uint64 more_at; // steady clock, microseconds; DT_NOEND = no session waits
};

void init_spending(Spending *spending);
void reset_spending(Spending *spending);

} // namespace outbox
