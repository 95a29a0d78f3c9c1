// Scan floors: for each run of an index of outbox.pending that is read from its beginning, a
// bound below which no live entry lies.
//
// Guarantees: a committed row is found at once, whatever its key, because its commit lowers
// the floor to it before it wakes any worker. Floors are a cache: without shared memory, without a
// slot, or after a crash, scans begin at the beginning. The worker's sweep finds rows that no commit
// of ours announced (COMMIT PREPARED by replication).
//
// Shape: finished rows stay in the index until VACUUM may remove them, which an old snapshot
// forbids: each scan from the beginning would walk over all of them. So a scan that
// walks to the first live entry raises the floor to it, one scan at a time: it takes the floor, which
// empties `noted`, walks from `at`, and raises `at` to what it found, but not above `noted`. A commit
// lowers both. Each of the three is one step under a spinlock: a commit that the walk could not see
// comes after the taking, so it is noted, or after the raising, so it lowers what was raised.
//
// A transaction's own entries are in entries.h.
#pragma once

#include "server/pg.h"

namespace outbox {

constexpr int priorities = 16;

// Under the lock: loads and stores, nothing that can fail or wait.
struct Floor {
	slock_t lock;
	uint32 raiser;     // number of its PGPROC + 1; 0 = none
	TimestampTz at;    // nothing live below; DT_NOEND: nothing at all
	TimestampTz noted; // the least key of a commit since a raiser began
};

// Called once. Nothing is known.
void init_floor(Floor *floor);
// Nothing is known any more: a scan that is raising it raises nothing.
void reset_floor(Floor *floor);

// ---- scanning

struct FloorScan {
	Floor *floor;     // nullptr: none, or the floor is not to be raised
	TimestampTz most; // this transaction may make live again what lies there
};

// Where to begin: DT_NOEND when there is nothing to be found. floor may be nullptr.
TimestampTz begin_at_floor(FloorScan *scan, Floor *floor, TimestampTz made, TimestampTz removed);
// The first live entry has that key, or none lies below it.
// Where, for those who do not raise it.
TimestampTz floor_at(Floor *floor);
void raise_floor(FloorScan *scan, TimestampTz key);
void leave_floor(FloorScan *scan);

// Makes sure that scans begin at the key, or below.
void lower(Floor *floor, TimestampTz key);

// After an error, in a subtransaction too.
void give_up_raising();

} // namespace outbox
