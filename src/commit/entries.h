// The entries that this transaction makes in and removes from the indexes of outbox.pending.
//
// Guarantee: no scan floor stands above an entry that is live for the reader. A transaction's own entries
// are live for it while others cannot see them: its scans begin at the least that it made. Entries that it removed are
// live again if it fails: it raises no floor above the least that it removed. Its commit lowers the floors to what it
// made.
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
// Rows with unknown keys became visible.
void lower_all_floors();

// ---- scanning

// ref: the queue's, looked up before.
TimestampTz begin_at_due_floor(FloorScan *scan, const QueueRef &ref, const text *queue, int priority);
TimestampTz begin_at_lease_floor(FloorScan *scan);
// The same for those who only look.
TimestampTz due_floor(const QueueRef &ref, const text *queue, int priority);
TimestampTz lease_floor();

} // namespace outbox
