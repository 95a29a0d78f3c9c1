// Gathering rows that a claim may lease.
//
// Guarantees: what is returned was due and has a message that the calling statement sees. The scan rests behind it, so
// nothing is pinned, and goes on there.
#pragma once

#include "message/fair.h"
#include "verbs/candidate.h"

namespace outbox {

struct Gathered {
	Candidate *candidates;
	int room;
	bool all; // nothing is due behind them
};

// Gathers up to `most` candidates with a message; 0 only if no other row is due. While this statement sees none of the
// messages, it reads more rows at a time.
int gather(DueScan *scan, Claim *claim, Gathered *gathered, int most);
// The same in a queue that serves its keys in turn. What this statement does not see has had its turn all the same.
int gather_in_turn(FairScan *scan, Claim *claim, Gathered *gathered, int most);

} // namespace outbox
