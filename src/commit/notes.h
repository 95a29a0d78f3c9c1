// What this transaction notes of each queue, to be announced at its end (transaction.h).
//
// Guarantee: a note carries the nesting level that noted it, so what a savepoint noted is forgotten with it, and passes
// to the level above when it is released.
#pragma once

#include "commit/shared.h"

namespace outbox {

struct Note {
	Note *next;
	int level;
	QueueRef ref;          // none: no room in shared memory, or no shared memory
	TimestampTz due_at;    // the earliest
	TimestampTz due_later; // the earliest that was not due when it was noted
	bool dropped;          // the queue, at some time
	bool made_again;       // after that
	bool altered;          // its settings
	bool turn_passed;      // a key may have to go on
	bool marked;           // and a mark says which
	bool removed;          // a row that others may have passed over meanwhile
	bool key_taken;        // a lease of a key with a limit was made (taken_keys.h)
	bool key_freed;        // or ended
	int64 counts[counters];
	int latency[latency_buckets];
	int64 kept[kept_counts]; // changes of these counts
	bool saw_in_flight;      // and in which generation, below, its leases are counted (in_flight.h)
	uint32 in_flight_generation;
	int64 reserved;    // leases that the shared count has already
	int64 reserving;   // of these, those that a claim may still make
	core::Spent spent; // of the rate (spending.h)
	char queue[NAMEDATALEN];
};

// All in TopTransactionContext.
struct Notes {
	Note *first;
	DatabaseSlot *database;
	TimestampTz expires_at;
	bool told_listeners; // by this transaction itself
	Oid written;         // outbox.messages, if this may be the first enqueue into it
	bool news;
	bool news_of_extension;
	bool made_anew;        // our extension
	XLogRecPtr leases_end; // of the transaction's WAL, if all of it is of leases
};

extern Notes notes;

// Of the present level; made if need be.
Note *note_of(const text *queue);
void forget_notes();
// Of that level and above it.
void forget_notes_from(int level);
void hand_notes_up(int level);

// Tells the worker that something of the queue became claimable. Atomic operations only.
void raise_flag(QueueSlot *slot);
void wake_worker();
// Has it wake sessions that wait for the queues, if there is something for them. Atomic operations only.
void rouse(QueueMask queues);

} // namespace outbox
