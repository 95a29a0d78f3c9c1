// max_in_flight_per_key: how many messages of a partition key may be leased at a time.
//
// Guarantees: all claims together lease no more of a key. They wait for no other: a claim that meets a key at which
// another claim is leaves it alone. A lease counts until it is cleared, an expired one until it is repaired; a lease
// that ends frees its place at the commit, but at once for the transaction that ends it.
//
// Shape: a claim locks the key, counts the leases in the table, those of open transactions included, writes its own,
// and unlocks the key. Messages of such a queue have a negative fair_key, and their leases an index of their own.
// Messages without a partition key have no limit.
#pragma once

#include "message/queue.h"

namespace outbox {

// The fair_key of a message in a fair queue, and the last one that there may be.
int64 fair_key_of(const Queue *queue, const text *partition_key);
inline int64
last_fair_key(const Queue *queue)
{
	return queue->fair_base + (int64{1} << fair_key_bits) - 1;
}

struct QueueSlot;

struct KeyLimit {
	Call *call;
	const Queue *queue;
	QueueSlot *slot; // or nullptr
	HTAB *places;    // left, by key; nullptr: no key was looked at
	Probe *leases;   // nullptr: there was nothing to count
	bool looking;    // to know whether anything can be claimed: locks nothing
	bool announced;  // that a key was full
};

void begin_key_limit(KeyLimit *limit, Call *call, const Queue *queue);
// Whether one more message of the key may be leased. Other claims are kept from the key until let_keys_go().
bool take_place_in_key(KeyLimit *limit, int64 fair_key);
// The leases are in the table, or will not be.
void let_keys_go(KeyLimit *limit);
void end_key_limit(KeyLimit *limit);

} // namespace outbox
