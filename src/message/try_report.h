// The reports of workers on their tries, one or many.
//
// Guarantees: a stale token is refused before any lock. An accepted report appends
// exactly one attempt and ends or reschedules its message, in one transaction. Once the
// pending row is changed no other session can take it, however long that transaction lasts.
// Batches change rows in the order of outbox_id, so two batches never deadlock, and one
// bad report fails alone. In an ordered key a message that is held back ends only behind one that the same
// batch ends.
//
// Shape: the ledger is read without a lock, then the pending row is changed in exactly
// the version that was read. On success no row can have been appended in between;
// otherwise everything is read again. A batch reads the pending rows of a chunk
// by one walk, then their ledgers by another, then changes them one by one.
#pragma once

#include "message/ledger.h"
#include "message/pending_row.h"

namespace outbox {

// A worker's report on one try: its arguments, what was read ahead, and the result.
struct TryReport {
	// arguments
	core::Uuid id;
	core::Uuid token;
	bool has_state;
	core::Record state;
	Details details;
	bool has_delay;
	int64 delay_us;
	bool is_release; // beyond max_releases: recorded without waiting for the row
	int bad;         // SQLSTATE of an argument; 0 = none

	// read ahead
	PendingRow *row; // or nullptr
	bool has_before;
	Tried before;

	bool deferred;    // held back: it may follow another of the batch
	PendingRow *gone; // it has ended, and its key may go on
	bool apart;       // it is settled in a subtransaction

	// result
	Attempt *attempt; // recorded by this call
	int attempt_no;   // 0 = none
	core::Record recorded;
	bool rescheduled;
	TimestampTz next_attempt_at;
	int error; // SQLSTATE; 0 = none
};

// Raises an ERROR if the report is refused.
void settle_try(Call *call, TryReport *report, const text *worker);
// Puts refusals into the error of each report.
void settle_tries(Call *call, TryReport *reports, int count, const text *worker);

} // namespace outbox
