// Waiting, inside the server, until something is claimable.
//
// Guarantees: a message that becomes claimable after the wait began ends it. The background worker
// wakes waiting sessions together with the listeners. Without a worker, sessions look themselves. If
// its client is gone, a session ends before it looks again.
#pragma once

#include "message/queue.h"
#include "commit/shared.h"

namespace outbox {

struct Waiting {
	DatabaseSlot *database; // nullptr = no shared memory
	const List *queues;     // their names
	int64 ends_at;          // steady clock
};

void begin_waiting(Waiting *waiting, const List *queues, int64 us);
// Sleeps until the next look; false if the time is up. The caller has looked since the last call.
bool wait_on(Waiting *waiting);
void end_waiting();

// One look; its memory is freed when it ends.
template <typename Look>
void
look_once(const Look &look)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "outbox look", ALLOCSET_SMALL_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);

	look();
	MemoryContextSwitchTo(previous);
	MemoryContextDelete(context);
}

} // namespace outbox
