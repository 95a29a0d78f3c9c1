// Leasing what is due: what claim and complete_and_claim share.
//
// Guarantees: as in claim.cpp.
#pragma once

#include "server/args.h"
#include "rows/call.h"
#include "message/unrouted.h"

namespace outbox {

constexpr int claim_columns = 20;

struct Claim {
	FunctionCallInfo fcinfo; // its result
	PutRow put;
	text *worker;
	const List *queues; // their names
	int wanted;
	int taken;
	int ended;
	bool has_lease;
	int64 lease_us;
	Snapshot snapshot;   // of the calling statement
	bool leases_only;    // the transaction has written nothing else
	Unrouted unrouted;   // skipped
	MemoryContext round; // memory of a chunk
};

// The first argument is the worker. batch_size, lease and queues are consecutive, from `first` on.
Claim claim_arguments(FunctionCallInfo fcinfo, int first);

// Leases from those of the queues that exist, and puts the results.
void claim_due(Call *call, Claim *claim);

} // namespace outbox
