// The order of claims: a walk over the rows of a queue that are due.
//
// Guarantees: highest priority first, and within a priority the row that has been due longest. In a queue with
// priority_aging the priority that counts is the effective one (core/aging.h), at the time of the call. Rows that
// another open transaction is changing are skipped. Scheduled and leased rows cost nothing: a row's
// place in the index is the time at which it becomes claimable, greatest(next_attempt_at,
// lease_expires_at), so they stand behind the due ones. Finished rows that VACUUM may not remove
// cost nothing, either: a walk begins at the floor (floor.h), and raises it.
//
// A walk that stands on a row keeps a page pinned: rest it before anything is locked or changed. It
// continues behind the row at which it was left, whatever happened to the rows before it.
#pragma once

#include "commit/entries.h"
#include "commit/shared.h"
#include "message/pending_row.h"
#include "message/queue.h"

namespace outbox {

// Of a row.
struct DuePlace {
	int level;
	Place place;
};

struct AgedLevels;

struct DueScan {
	Call *call;
	const Queue *queue;
	Relation index;
	Probe probe;
	int level; // the current priority; above all of them at the beginning
	bool in_level;
	bool resting;
	bool resumed; // skips the rows up to left_at
	Place left_at;
	QueueRef ref;     // without a slot: no floors
	FloorScan floor;  // of the level
	AgedLevels *aged; // nullptr: priorities are strict
};

void begin_due_scan(DueScan *scan, Call *call, const Queue *queue);
// The row is in scan->probe.slot.
bool next_due(DueScan *scan);
// Unpins its pages, to continue behind a row that it has returned.
void rest_due_scan(DueScan *scan, const DuePlace &place);
void end_due_scan(DueScan *scan);

// Moves on to the next lower priority with a row that is due, in place of the rows that are left of this one, and rests
// in front of its first. next_due_in_level() returns rows of it alone.
bool next_due_level(DueScan *scan);
bool next_due_in_level(DueScan *scan);

bool has_due(Call *call, const Queue *queue);
// Up to `most`.
int count_due(Call *call, const Queue *queue, int most);

// The earliest time after `after` at which a row of the queue becomes claimable; DT_NOEND if there
// is none. Behind many dead entries, a time before which there is none.
TimestampTz next_due_after(Call *call, const Queue *queue, TimestampTz after);

// Continues the search for live rows below the floors that no commit announced, and remembers its
// position. Lowers the floor to the first that it finds.
void sweep_due(Call *call, const Queue *queue);

} // namespace outbox
