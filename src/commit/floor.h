// Scan floors: for each run of an index of outbox.pending that is read from its beginning, a
// bound below which no live entry lies.
//
// Guarantees: what was committed is found at once, whatever its key, for its commit lowers
// the floor to it before it wakes anybody. It is a cache: without shared memory, without a
// slot, after a crash, scans begin at the beginning. What no commit of ours tells
// (COMMIT PREPARED by replication) the worker's sweep finds.
//
// Shape: finished rows stay in the index until VACUUM may remove them, which an old snapshot
// forbids: a scan from the beginning would walk over all of them, each time. So whoever
// walks to the first live entry raises the floor to it. One at a time: it takes the floor,
// empties `noted`, reads `at`, and walks; commits lower `noted` first, then `at`. It raises
// `at` to what it found, only from what it read, and lowers it to `noted`. Of a commit that it
// could not see, then, one of the two steps comes after one of its own; docs/internals.md goes
// through them. In between `at` may be too high: scans begin at `noted` where that is lower.
//
// A transaction's own entries are in entries.h.
#pragma once

#include "server/pg.h"

namespace outbox {

constexpr int priorities = 16;

struct Floor {
	pg_atomic_uint64 at;     // nothing live below; DT_NOEND: nothing at all
	pg_atomic_uint64 noted;  // the least key of a commit since a raiser began
	pg_atomic_uint32 raiser; // number of its PGPROC + 1
};

// Nothing is known. Two times never look the same, so that who raised the floor of the slot's
// last owner does not raise this one.
void init_floor(Floor *floor, uint32 time);
void init_floors(Floor *floors, uint32 time);

// ---- scanning

struct FloorScan {
	Floor *floor; // nullptr: none, or the floor is not to be raised
	TimestampTz began_at;
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
