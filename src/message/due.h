// The order of claims: walking the rows of a queue that are due.
//
// Guarantees: oldest due first within priority, highest priority first; rows that another
// open transaction is changing are skipped. The cost does not depend on scheduled or
// leased rows: the position of a row in the index is the time at which it becomes claimable,
// greatest(next_attempt_at, lease_expires_at), so such rows stand behind the due ones. Nor
// does it depend on finished rows that VACUUM may not remove: a walk begins at the floor
// (floor.h), and raises it.
//
// A walk keeps a page pinned for each row that it stands on: rest it before anything is locked
// or changed. It goes on behind the row it was left at, and what became of the rows before does
// not matter.
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

struct DueScan {
	Call *call;
	const Queue *queue;
	Relation index;
	Probe probe;
	int level; // the priority that is being read; above all before the first
	bool in_level;
	bool resting;
	bool resumed; // what stands up to there was met before
	Place left_at;
	QueueRef ref;    // none: no floors
	FloorScan floor; // of the level
};

void begin_due_scan(DueScan *scan, Call *call, const Queue *queue);
// The row is in scan->probe.slot.
bool next_due(DueScan *scan);
// Lets go of its pages, to go on behind a row that it has met.
void rest_due_scan(DueScan *scan, const DuePlace &place);
void end_due_scan(DueScan *scan);

bool has_due(Call *call, const Queue *queue);

// The earliest time after `after` at which a row of the queue becomes claimable; DT_NOEND
// when there is none. Where many dead entries lie, a time before which there is none.
TimestampTz next_due_after(Call *call, const Queue *queue, TimestampTz after);

// Looks on, entry by entry, for live rows below the floors that no commit announced, and remembers
// its position. Lowers the floor to the first that it finds.
void sweep_due(Call *call, const Queue *queue);

} // namespace outbox
