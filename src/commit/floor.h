// Scan floors: a bound for each part of an index of outbox.pending that is scanned from its
// beginning. No live entry lies below it.
//
// Guarantees: a scan finds each committed row, whatever its key, because the commit lowers the
// floor to it before it wakes a worker. Floors are a cache: without shared memory, without a
// slot, or after a crash, scans begin at the beginning. The worker's sweep finds rows that no
// commit announced (COMMIT PREPARED by replication).
//
// Shape: finished rows stay in the index until VACUUM removes them, which an old snapshot
// prevents. Each scan from the beginning would walk over all of them. So the scan that reaches
// the first live entry raises the floor to it. Only one scan at a time does this: it takes the
// floor, which empties `noted`, walks from `at`, and raises `at` to what it found, but not above
// `noted`. A commit lowers both. Each of the three is one step under a spinlock. A commit that the
// walk could not see comes either after the taking, and is noted, or after the raising, and
// lowers what was raised.
//
// entries.h has the entries of the transaction itself.
#pragma once

#include "server/pg.h"

namespace outbox {

constexpr int priorities = 16;

// Changed under its lock, by loads and stores only, which cannot fail or wait.
struct Floor {
	slock_t lock;
	uint32 raiser;     // number of its PGPROC + 1; 0 = none
	TimestampTz at;    // nothing live below; DT_NOEND: nothing at all
	TimestampTz noted; // the least key of a commit since a raiser began
};

// Called once.
void init_floor(Floor *floor);
// Back to the beginning. A scan that is raising the floor raises nothing.
void reset_floor(Floor *floor);

// ---- scanning

struct FloorScan {
	Floor *floor;     // nullptr: none, or the floor is not to be raised
	TimestampTz most; // an abort of this transaction may bring back what lies above
};

// Where to begin: DT_NOEND if there is nothing to find. floor may be nullptr. made, removed: the
// least keys that this transaction made and removed.
TimestampTz begin_at_floor(FloorScan *scan, Floor *floor, TimestampTz made, TimestampTz removed);
// For scans that do not raise it.
TimestampTz floor_at(Floor *floor);
// The first live entry has that key, or none lies below it.
void raise_floor(FloorScan *scan, TimestampTz key);
void leave_floor(FloorScan *scan);

// Scans begin at the key or below from now on.
void lower(Floor *floor, TimestampTz key);

// After an error, in a subtransaction too.
void give_up_raising();

} // namespace outbox
