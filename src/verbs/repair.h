// Repair of expired leases, for repair_expired_leases, maintain and the background worker.
#pragma once

#include "server/boundary.h"
#include "commit/entries.h"
#include "message/queue.h"
#include "message/unrouted.h"
#include "rows/probe.h"

namespace outbox {

// A walk over the expired leases, earliest expiry first.
struct RepairScan {
	// arguments
	int most;            // to repair in one call
	bool whole_expiries; // most counts the leases looked at, and all that expire together with the last
						 // one follow: the next call continues behind them
	text *by;
	const List *queues;      // NIL = all
	TimestampTz from;        // earlier expiries are left out; the walk moves it
	bool cautious;           // leave a row alone if its ledger is behind its attempt_count, or
							 // its queue is younger: a restore may be filling the tables
	Confine confine;         // which errors of a row do not stop the others
	FunctionCallInfo result; // gets each repaired lease, unless nullptr
	void (*failed)(const core::Uuid &id, const char *why,
				   int sqlstate); // called for each row that was left, unless nullptr

	// results
	int repaired;
	bool more;         // there may be more
	Unrouted unrouted; // skipped
	List *locked;      // leaves of the ledger that other sessions have locked for longer than lock_timeout

	FloorScan floor;
	bool resumed; // skips the rows up to left_at
	Place left_at;
	MemoryContext round; // memory of a chunk
};

void repair(Call *call, RepairScan *scan);

// The earliest expiry of a lease after `after`; DT_NOEND if there is none. Behind many dead entries, a
// time before which there is none.
TimestampTz next_expiry_after(Call *call, TimestampTz after);

// As sweep_due(), for leases.
void sweep_leases(Call *call);

} // namespace outbox
