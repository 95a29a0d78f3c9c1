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

// Makes what is missing, each step by make(after_ms), which calls make_next_pair(). A pair that is left
// for later holds up those after it: with them, new ids would no longer be kept out of its time. In one
// transaction the first of several steps is the last, too. Returns what came of the last step.
enum class InOneTransaction { yes, no };
template <typename Make>
MadePair
make_pairs(InOneTransaction in_one, const Make &make)
{
	int64 after_ms = PG_INT64_MIN;
	MadePair pair;
	bool goes_on;

	do
	{
		CHECK_FOR_INTERRUPTS();
		pair = make(after_ms);
		goes_on = pair.unfinished ? in_one == InOneTransaction::no : pair.action != nullptr && !pair.left;
		if (!pair.unfinished)
			after_ms = pair.upto_ms;
	} while (goes_on);
	return pair;
}

} // namespace outbox
