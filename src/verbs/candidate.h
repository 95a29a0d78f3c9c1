// A claim at work: the rows that it is about to lease, and the messages that it returns for them.
#pragma once

#include "message/due.h"
#include "message/order.h"
#include "message/unrouted.h"
#include "server/args.h"

namespace outbox {

constexpr int claim_columns = 20;

struct Claim {
	FunctionCallInfo fcinfo; // its result
	PutRow put;
	text *worker;
	bool for_handler;
	const List *queues;   // their names
	const int32 *weights; // of each, or nullptr: in order
	int wanted;
	int most; // of the queue in hand, and those before it
	int taken;
	QueueMask taken_from;
	int ended;
	bool has_lease;
	int64 lease_us;
	Snapshot snapshot;   // of the calling statement
	bool leases_only;    // the transaction has written nothing else
	Unrouted unrouted;   // skipped
	MemoryContext round; // memory of a chunk
};

// What is leased behind the head of an ordered key, with it.
struct Run {
	KeyPlace last; // that was leased
	int room;      // how many more there may be
	bool over;
};

// One due row, and the message it stands for.
struct Candidate {
	PendingRow *row;
	DuePlace place;
	Run *run; // that it continues, or nullptr
	Table *leaf;
	HeapTuple message;
	bool taken;
	int attempt_count;
	core::Uuid token;
	TimestampTz expires_at;
};

// Finds their messages. Drops those that have no partition or no message, or one that this statement may not see.
// Returns how many are left.
int find_messages(Call *call, Claim *claim, Candidate *candidates, int count);

// For the audit events, once it is leased.
void note_taken(Call *call, const Claim *claim, const Candidate *candidate);

} // namespace outbox
