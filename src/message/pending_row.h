// One row of outbox.pending in hand: decoded, changed, written back.
//
// Guarantee: store() and remove() act on exactly the version that was loaded; if
// the row has changed since, they report it and change nothing. All that was
// concluded from the loaded version, and read from the ledger after it, still holds
// when they succeed: a transaction that appends to a message's ledger also changes its pending
// row.
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
	TimestampTz claimable_at; // as it was loaded: where it stands in the index pending_due
};

// Copies the row out of the slot, in one piece: pfree() gives back all of it.
PendingRow *load(Table *table, TupleTableSlot *slot, MemoryContext context = CurrentMemoryContext);

// The row of a message in its newest committed version, or as this transaction left it.
PendingRow *find_pending(Call *call, const core::Uuid &id);

// Changes to the copy.
void put_lease(PendingRow *row, text *worker, TimestampTz at, const core::Uuid &token, TimestampTz expires_at);
void clear_lease(PendingRow *row);

// attempt_count only grows.
void count_attempt(PendingRow *row, int attempt_no);

// Makes sure, by a lock, that the loaded version is still the newest.
Changed hold(Call *call, PendingRow *row, Wait wait);
Changed store(Call *call, PendingRow *row, Wait wait);
Changed remove(Call *call, PendingRow *row, Wait wait);

} // namespace outbox
