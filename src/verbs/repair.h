// Repair of expired leases as other parts call it.
#pragma once

#include "server/boundary.h"
#include "commit/entries.h"
#include "message/queue.h"
#include "message/unrouted.h"
#include "rows/probe.h"

namespace outbox {

// A walk over the expired leases, earliest expiry first.
struct RepairScan {
	// asked
	int most;            // to repair in one call
	bool whole_expiries; // to look at, rather, and all that expire together with the last of them:
						 // then the walk can go on behind it
	text *by;
	const List *queues;      // NIL = all
	TimestampTz from;        // expiries before that are left out; the walk moves it on
	bool cautious;           // leave rows alone whose ledger is behind their attempt_count, or
							 // whose queue is younger: a restore may be filling the tables
	Confine confine;         // what a row may raise without stopping the others
	FunctionCallInfo result; // each repaired lease goes there, unless nullptr
	void (*failed)(const core::Uuid &id, const char *why, int sqlstate); // hears of what was left, unless nullptr

	// answered
	int repaired;
	bool more;         // there may be more
	Unrouted unrouted; // passed by
	List *locked;      // leaves of the ledger that others have locked for longer than lock_timeout

	FloorScan floor;
	bool resumed; // what stands up to there was met before
	Place left_at;
	MemoryContext round; // what it holds of the rows in hand, emptied before the next
};

void repair(Call *call, RepairScan *scan);

// The earliest expiry of a lease after `after`; DT_NOEND when there is none. Where many dead
// entries lie, a time before which there is none.
TimestampTz next_expiry_after(Call *call, TimestampTz after);

// As sweep_due, for leases.
void sweep_leases(Call *call);

} // namespace outbox
