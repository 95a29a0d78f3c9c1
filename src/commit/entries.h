// The entries that this transaction makes in and removes from the indexes of outbox.pending.
//
// Guarantee: no scan begins above an entry that is live for it. A transaction sees its own entries before others do:
// its scans begin at the least that it made. An abort brings back the entries that it removed: it raises no floor above
// the least of these. Its commit lowers the floors to the entries that it made.
#pragma once

#include "commit/floor.h"

namespace outbox {

struct QueueRef;

struct Entry {
	const text *queue;
	int priority;
	TimestampTz next_attempt_at;
	bool leased;
	TimestampTz lease_expires_at; // when leased
	bool held_back;               // not in the index pending_due
};

// Where a row stands in the index pending_due.
inline TimestampTz
claimable_at(TimestampTz next_attempt_at, bool leased, TimestampTz lease_expires_at)
{
	return leased ? Max(next_attempt_at, lease_expires_at) : next_attempt_at;
}

inline TimestampTz
claimable_at(const Entry &entry)
{
	return claimable_at(entry.next_attempt_at, entry.leased, entry.lease_expires_at);
}

// See transaction.h, which announces them.
void remember_made(const Entry &entry);
void remember_removed(const Entry &entry);

// At the end of the transaction. Atomic operations only.
void lower_floors();
void forget_entries();
// After rows with unknown keys became visible.
void lower_all_floors();

// ---- scanning

// ref: of the queue.
TimestampTz begin_at_due_floor(FloorScan *scan, const QueueRef &ref, const text *queue, int priority);
TimestampTz begin_at_lease_floor(FloorScan *scan);
// For scans that raise no floor.
TimestampTz due_floor(const QueueRef &ref, const text *queue, int priority);
TimestampTz lease_floor();

} // namespace outbox
