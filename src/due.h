// The order of claims: walking the rows of a queue that are due.
//
// Guarantees: oldest due first within priority, highest priority first; rows that another
// open transaction is changing are passed over. The cost does not depend on what is
// scheduled or leased: the index holds a row where it becomes claimable,
// greatest(next_attempt_at, lease_expires_at), so such rows stand behind the due ones.
#pragma once

#include "pending_row.h"
#include "queue.h"

namespace outbox {

struct DueScan {
	Work *work;
	const Queue *queue;
	Relation index;
	Probe probe;
	int level;			// the priority that is being read; above 15 before the first
	bool in_level;
};

void begin_due_scan(DueScan *scan, Work *work, const Queue *queue);
// The row is in scan->probe.slot.
bool next_due(DueScan *scan);
void end_due_scan(DueScan *scan);

bool has_due(Work *work, const Queue *queue);

// The earliest time after `after` at which a row of the queue becomes claimable; DT_NOEND
// when there is none.
TimestampTz next_due_after(Work *work, const Queue *queue, TimestampTz after);

}	// namespace outbox
