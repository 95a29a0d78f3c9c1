// Dated partitions of messages, attempts and audit events.
//
// Guarantees: a pair, the leaf of messages and its counterparts of the other two, is made in one (sub)transaction. It
// has its indexes, triggers and comments before it is attached. No strong lock is held while a large DEFAULT partition
// is read, and no enqueue fails because of it. What cannot be made now (a lock is not available, rows of that time are
// in a DEFAULT partition) is reported and left for later. Rows are never moved.
#pragma once

#include "server/pg.h"

namespace outbox {

// How many periods after the current one have their partitions.
constexpr int partitions_ahead = 2;

// What was done with a pair.
struct MadePair {
	const char *action; // nullptr = no pair is missing
	const char *object;
	const char *detail;
	bool left;       // it is missing, and could not be made
	bool unfinished; // the first steps of several were taken; each is a transaction
	int64 upto_ms;   // its upper bound
};

// Takes one step for the first gap between partitions that ends after that time, in the current
// period and those ahead.
MadePair make_next_pair(int64 after_ms);
bool lacks_partitions();

// Makes the missing pairs, each step by make(after_ms), which calls make_next_pair(). Stops at a pair
// that is left for later: a later pair would allow new ids in its time. In one transaction it also
// stops after the first of several steps. Returns the last step.
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
