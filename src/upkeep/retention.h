// Retention: whole partitions of messages and attempts go when they are old enough.
//
// Guarantees: a pair, the leaf of messages and that of attempts with the same bounds, goes in
// one (sub)transaction, dropped or archived; only when each of its messages has ended,
// nothing of that time or before is pending, and no dead letter in it is waiting for its
// replay. The number of a message whose key is remembered stays. DEFAULT partitions stay. A
// lock that is not to be had at once leaves the pair for a later pass.
#pragma once

#include "server/pg.h"

namespace outbox {

// What became of a pair.
struct RetiredPair {
	const char *action; // nullptr = there is none
	const char *object;
	const char *detail;
	bool retired;
	bool failed;   // neither kept for a reason nor for want of a lock
	bool last;     // those after it stay as well
	int64 upto_ms; // its upper bound
};

// The first pair that is old enough and ends after that time. To be called as the owner.
RetiredPair retire_next(int64 after_ms);

// SQL of this subsystem must see all that is committed: the caller's transaction is READ COMMITTED.
bool sees_latest();

} // namespace outbox
