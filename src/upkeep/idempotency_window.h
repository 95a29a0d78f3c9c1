// Forgetting keys that are older than outbox.idempotency_window.
//
// Guarantees: only keys that every enqueue treats as lapsed are deleted; rows that another transaction
// holds are skipped. The table has no index by age, which each enqueue would pay for. So it
// is scanned, a slice of blocks at a time; a walk that finds little stops early and the
// next one begins elsewhere.
#pragma once

#include "server/pg.h"

namespace outbox {

// A walk is made of slices, each of which may be a transaction of its own.
struct KeyWalk {
	bool begun;
	int64 left;    // blocks that it has not read
	int64 in_vain; // blocks without a lapsed key
	BlockNumber at;
	uint64 forgotten; // keys
};

constexpr int64 blocks_at_a_time = 1024;

// Handles one more slice. False if nothing was left to do, or if too many blocks held no lapsed
// key. Call it as the owner.
bool forget_keys(KeyWalk *walk, int64 most_in_vain);

} // namespace outbox
