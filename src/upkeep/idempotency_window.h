// Deletes keys that are older than outbox.idempotency_window.
//
// Guarantees: only keys that every enqueue treats as lapsed are deleted, and rows that another
// transaction holds are skipped.
//
// Shape: the table has no index by age, which would slow down each enqueue. So it is scanned, a slice
// of blocks at a time. A walk that finds little stops early, and the next one begins elsewhere.
#pragma once

#include "server/pg.h"

namespace outbox {

// A walk consists of slices. Each may be a separate transaction.
struct KeyWalk {
	bool begun;
	int64 left;    // blocks that it has not read
	int64 in_vain; // blocks without a lapsed key
	BlockNumber at;
	uint64 forgotten; // keys
};

constexpr int64 blocks_at_a_time = 1024;

// Handles one more slice. False at the end, or after too many blocks without a lapsed key. Call it as
// the owner.
bool forget_keys(KeyWalk *walk, int64 most_in_vain);

} // namespace outbox
