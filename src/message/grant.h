// How many messages of a queue a claim may lease now: its limits.
//
// Guarantees: a claim leases no more than it is granted, and all claims together no more than max_in_flight at a time,
// and than rate_limit and rate_burst allow. A claim that gets less than it wants is no error, and waits for no other:
// it leases fewer messages, or none.
//
// Shape: the count of leases, and what is spent of the rate, are kept in shared memory (commit/in_flight.h,
// spending.h). Where the count is unknown, or there is none, one claim at a time counts the leases in the table, under
// a lock that it tries; the others are granted nothing. Without a slot the rate is kept in a table (rate_table.h).
#pragma once

#include "message/queue.h"

namespace outbox {

struct Grant {
	const Queue *queue;
	int wanted;
	int count;
	bool is_full = false;  // max_in_flight leaves less than is wanted
	bool locked = false;   // until the leases are in the table
	bool spends = false;   // of the rate
	bool in_table = false; // that is kept in the table
};

Grant begin_grant(Call *call, const Queue *queue, int wanted);
// Nothing was leased.
void drop_grant(Call *call, Grant *grant);
// What was not leased is given back. If a limit leaves messages that are due, a session that waits is woken when it
// allows more.
void end_grant(Call *call, Grant *grant, int taken);

// Whether a claim would be granted anything. If not, a session that waits is woken when it would.
bool is_granted_any(Call *call, const Queue *queue);

// How many of its messages, up to `most`, can be claimed now, as far as shared memory knows the limits. If a limit
// makes them fewer, a session that waits is woken when it allows more.
int count_claimable(Call *call, const Queue *queue, int most);

} // namespace outbox
