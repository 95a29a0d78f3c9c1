// One row of outbox.pending: decoded, changed, written back.
//
// Guarantee: store() and remove() act on exactly the version that was loaded. If the row has changed
// since, they report it and change nothing. If they succeed, everything concluded from the loaded
// version, and from the ledger read after it, still holds: a transaction that appends to the ledger
// of a message also changes its pending row.
#pragma once

#include "rows/probe.h"
#include "rows/call.h"

namespace outbox {

struct PendingRow {
	ItemPointerData tid;
	Datum *values; // by attribute
	bool *nulls;
	core::Uuid id;
	text *queue;
	int priority;
	int attempt_count;
	int max_attempts; // 0 = the queue's
	TimestampTz next_attempt_at;
	TimestampTz created_at;
	bool leased;
	text *claimed_by;
	TimestampTz claimed_at;
	core::Uuid lease_token;
	TimestampTz lease_expires_at;
	int release_count;        // since one last counted as a try
	TimestampTz claimable_at; // its place in the index pending_due when it was loaded
	bool held_back;           // behind an earlier message of its key
	text *partition_key;      // nullptr = none
	int64 sequence_id;        // 0 = none
	int64 fair_key;           // 0 = none
};

// Copies the row out of the slot into one piece of memory, for pfree().
PendingRow *load(Table *table, TupleTableSlot *slot, MemoryContext context = CurrentMemoryContext);

// The row of a message in its newest committed version, or as this transaction left it.
PendingRow *find_pending(Call *call, const core::Uuid &id);

// Changes to the copy.
void put_lease(PendingRow *row, text *worker, TimestampTz at, const core::Uuid &token, TimestampTz expires_at);
void clear_lease(PendingRow *row);

// attempt_count only grows.
void count_attempt(PendingRow *row, int attempt_no);

// Locks the loaded version, if it is still the newest.
Changed hold(Call *call, PendingRow *row, Wait wait);
Changed store(Call *call, PendingRow *row, Wait wait);
Changed remove(Call *call, PendingRow *row, Wait wait);

} // namespace outbox
