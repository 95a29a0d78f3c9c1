// The order of claims in a queue with fair_by or max_in_flight_per_key: its keys in turn.
//
// Guarantees: highest priority first. Within a priority each key with a message that is due gets one, from the key on
// behind which the last claim stopped; if that is not enough, each key gets the same share more, the message that has
// been due longest first. Keys at their limit (key_limit.h) are passed over. While nothing was found the walk goes on
// until it has met every key, so nothing is stranded.
//
// Shape: the index pending_fair has what no worker holds, by key. A walk reads a few entries of a key, and descends
// to the next one if there are more, so a key costs the same however many messages it has. A walk in vain ends after
// some entries, and the rest comes from the due order (due.h), which also has what is not in the index: lost leases.
#pragma once

#include "message/due.h"
#include "message/key_limit.h"

namespace outbox {

// A key that has got a message, and the last one.
struct Share {
	int64 key;
	Place last;
	bool over;
};

struct FairScan {
	Call *call;
	const Queue *queue;
	DueScan due;
	KeyLimit limit;
	Relation index;
	Probe probe;
	MemoryContext context;
	enum Step { next_priority, turns, shares, by_time, over } step;
	bool started;
	bool standing; // the probe is where the step goes on
	int wanted;    // in this round
	int given;
	bool in_vain; // nothing was leased before
	// of a priority
	TimestampTz from; // nothing live lies before
	int64 start;      // where the circle begins
	int64 at;         // no key before it is still to come in this part of the circle
	bool wrapped;
	bool circled;
	bool inside; // the probe is for the one key `at`
	bool has_passed;
	int64 passed; // this key has had its turn
	int steps;    // entries since the last descent
	int patience; // entries without a message
	int due_left;
	Share *given_to;
	int keys;
	int room;
	int current;
	int share;
	int of_share;
};

void begin_fair_scan(FairScan *scan, Call *call, const Queue *queue);
// A round gathers so many rows. Those of the last one are written, so its keys are let go. in_vain: nothing was leased
// yet.
void begin_round(FairScan *scan, int wanted, bool in_vain);
// nullptr at the end of the round; of the queue, if scan->step is over.
PendingRow *next_fair(FairScan *scan, MemoryContext context);
// Unpins its pages.
void end_round(FairScan *scan);
void end_fair_scan(FairScan *scan);

// How many messages claims would find, up to a number; where a snapshot keeps rows alive, some twice.
int count_turns_due(Call *call, const Queue *queue, int most);

} // namespace outbox
