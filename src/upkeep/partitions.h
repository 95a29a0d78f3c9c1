// Dated partitions of messages and attempts.
//
// Guarantees: a pair, one leaf of each, is made in one (sub)transaction, complete with
// indexes, triggers and comments before it is attached; what cannot be made now (a lock
// not to be had, rows of that time in a DEFAULT partition) is reported and left for
// later. Nothing is ever moved.
#pragma once

#include "server/pg.h"

namespace outbox {

// How many periods after the current one have their partitions.
constexpr int partitions_ahead = 2;

// What became of a pair.
struct MadePair {
	const char *action; // nullptr = it is there
	const char *object;
	const char *detail;
	bool left; // it should be there, and is not
};

// The pair for the period that is so many ahead of the current one.
MadePair make_partitions(int ahead);
bool lacks_partitions();

} // namespace outbox
