// Forgetting keys that are older than outbox.idempotency_window.
//
// Guarantees: only keys that every enqueue holds for lapsed; rows that another transaction
// holds are passed by. The table has no index by age (each enqueue would pay for it), so it
// is read through, a slice of blocks at a time; a walk that finds little stops early and the
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

// One slice more. False when there was nothing left to do, or so many blocks were read in
// vain. To be called as the owner.
bool forget_keys(KeyWalk *walk, int64 most_in_vain);

} // namespace outbox
