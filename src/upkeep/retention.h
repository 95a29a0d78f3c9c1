// Retention: whole partitions of messages, attempts and audit events are retired when they are old enough.
//
// Guarantees: a pair, the leaf of messages and its counterparts of attempts and events with the same bounds, is dropped
// or archived in one (sub)transaction, and only if all its messages have ended, the last one long enough ago, and none
// of them is a dead letter that waits for a decision. Pending messages of other times do not matter. The DEFAULT
// partitions are the last pair; they are emptied. The number of a message with a remembered key is kept, and so is what
// audit events tell of the pairs that went before. If a lock is not available at once, the pair is left for a later
// pass.
#pragma once

#include "server/pg.h"

namespace outbox {

// What was done with a pair.
struct RetiredPair {
	const char *action; // nullptr = there is none
	const char *object;
	const char *detail;
	bool retired;
	bool failed; // not kept on purpose or because of a lock
	bool is_default;
	int64 upto_ms;         // its upper bound
	const char *last_seal; // the last one that may cover its rows; nullptr = there is no seal
};

// The first pair that is old enough and ends after that time. Call it as the owner, in a READ COMMITTED
// transaction: its SQL must see everything that is committed.
RetiredPair retire_next(int64 after_ms);

} // namespace outbox
