// How many messages of a queue a claim may lease now: its limits.
//
// Guarantees: a claim leases no more than it is granted, and all claims together no more than max_in_flight. A claim
// that gets less than it wants is no error, and waits for no other: it leases fewer messages, or none.
//
// Shape: the count of leases is kept in shared memory (commit/in_flight.h). Where it is unknown, or there is none, one
// claim at a time counts the leases in the table, under a lock that it tries; the others are granted nothing.
#pragma once

#include "message/queue.h"

namespace outbox {

struct Grant {
	const Queue *queue;
	int count;
	bool locked; // until the leases are in the table
};

Grant begin_grant(Call *call, const Queue *queue, int wanted);
// What was not leased is given back.
void end_grant(Grant *grant);

} // namespace outbox
