// Dated partitions of messages and attempts.
//
// Guarantees: a pair, one leaf of each, is made in one (sub)transaction, complete with
// indexes, triggers and comments before it is attached; no strong lock is held while a large
// DEFAULT partition is read; no enqueue fails because of it. What cannot be made now (a lock is not
// available, rows of that time are in a DEFAULT partition) is reported and left for later. Rows
// are never moved.
#pragma once

#include "server/pg.h"

namespace outbox {

// How many periods after the current one have their partitions.
constexpr int partitions_ahead = 2;

// What was done with a pair.
struct MadePair {
	const char *action; // nullptr = each period that should have one has it
	const char *object;
	const char *detail;
	bool left;       // it should be there, and is not
	bool unfinished; // one step of several was taken, each of which is a transaction
	int64 upto_ms;   // its upper bound
};

// One step for the first gap between partitions that ends after that time, of the current
// period and those ahead.
MadePair make_next_pair(int64 after_ms);
bool lacks_partitions();

} // namespace outbox
