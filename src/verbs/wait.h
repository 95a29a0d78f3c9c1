// Waiting, inside the server, until something is claimable.
//
// Guarantees: a message that becomes claimable after the wait began ends the wait of one session that can have it. The
// background worker wakes it (commit/waiters.h); meanwhile a session neither looks nor wakes up. While the worker is in
// trouble, or there is none, sessions look themselves. A session ends as soon as its client is gone.
#pragma once

#include "message/queue.h"
#include "commit/shared.h"

namespace outbox {

struct Waiting {
	DatabaseSlot *database; // nullptr = no shared memory
	const List *queues;     // their names
	QueueMask mask;
	int wanted;    // messages
	int64 ends_at; // steady clock
};

void begin_waiting(Waiting *waiting, const List *queues, int wanted, int64 us);
// Sleeps until the next look; false if the time is up. The caller has looked since the last call.
bool wait_on(Waiting *waiting);
// found_in: the queues in which the last look has found something.
void end_waiting(QueueMask found_in);

// One look; its memory is freed when it ends.
template <typename Look>
void
look_once(const Look &look)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "outbox look", ALLOCSET_SMALL_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);

	begin_look();
	elog(DEBUG1, "looking for work");
	look();
	MemoryContextSwitchTo(previous);
	MemoryContextDelete(context);
}

} // namespace outbox
