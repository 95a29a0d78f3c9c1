// How many leases of a queue are out: what a queue's max_in_flight is compared with.
//
// Guarantees: a claim reserves before it leases, so the limit is never exceeded by claims, in however many sessions
// they run. A reservation is given back if the transaction or the savepoint is rolled back; a lease that ends frees its
// place at the commit, but at once for the transaction that ends it. A lease counts until it is cleared: an expired one
// until it is repaired.
//
// Shape: the count is a cache in shared memory. It is known in a generation, or unknown: after a start, a PREPARE, or
// when a transaction ends whose leases were not seen in the present generation. Then a claim counts the leases in the
// table, those of open transactions included, and begins a new generation. One claim counts at a time; others get
// nothing until it has. A count that is too high (a claim that was prepared and rolled back) is corrected when the
// worker makes it unknown, at each safety poll.
#pragma once

#include "commit/spinlock.h"

namespace outbox {

// Under the lock: loads and stores, nothing that can fail or wait.
struct InFlight {
	pg_atomic_uint32 watched; // the rest matters to transactions that end; without a limit they leave it alone
	slock_t lock;
	uint32 generation; // 0 = unknown
	uint32 last_generation;
	bool counting;   // by a claim that found it unknown
	uint32 ended;    // transactions that ended meanwhile, and when all is forgotten
	int64 count;     // leases, and reservations
	int64 reserving; // reservations of claims that are at work: their leases need not be in the table yet
	bool refused;    // a claim could have leased more
};

// Changes it by body().
template <typename Body>
void
change(InFlight *in_flight, const Body &body)
{
	under(&in_flight->lock, [&] {
		body();
		pg_atomic_write_u32(&in_flight->watched,
							in_flight->generation != 0 || in_flight->counting || in_flight->refused);
	});
}

void init_in_flight(InFlight *in_flight);
void reset_in_flight(InFlight *in_flight);
// The next claim counts.
void forget_in_flight(InFlight *in_flight);

} // namespace outbox
