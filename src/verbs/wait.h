// Waiting, inside the server, until something is claimable.
//
// Guarantees: whatever becomes claimable after the wait began ends it: the background
// worker tells those who wait together with the listeners. Where there is no worker, and
// should it be gone, they look by themselves.
#pragma once

#include "message/queue.h"
#include "commit/shared.h"

namespace outbox {

struct Waiting {
	DatabaseSlot *database; // nullptr = no shared memory
	int64 ends_at;          // steady clock
};

void begin_waiting(Waiting *waiting, int64 us);
// Sleeps until it is worth looking again; false when the time is up. Whoever calls it has
// looked since the last time.
bool wait_on(Waiting *waiting);
void end_waiting(Waiting *waiting);

// One of the looks, however many there will be: its memory is free when it is over.
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
