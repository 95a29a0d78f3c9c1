// What the background worker of a database knows, and its steps.
//
// Guarantees: each step is a separate transaction and fails alone (step.h). What it could not do stays
// announced: the flags of queues that were not notified are raised again, an expiry that was not
// repaired and a look that failed come again after a pause.
#pragma once

#include "process/step.h"

namespace outbox {

// A queue as this worker follows it.
struct Watch {
	uint32 generation;      // of its slot
	int64 gathers_until;    // steady clock: the next notification is not sent before
	TimestampTz next_due;   // DT_NOEND = nothing known
	TimestampTz seen_until; // messages due until then have been announced
	int64 listed;           // the last look that found the queue in the table
	bool rouses;            // sessions that wait for it are to be woken
	bool afresh;            // also if some were woken before
	bool comes;             // something has, which a handler may be for
	bool known;             // whether it has a handler
	bool has_handler;
	uint32 altered; // when that was known
};

struct Worker {
	DatabaseSlot *slot;
	MemoryContext context; // reset in each round
	Watch *watches;
	Step look;
	Step notify;
	Step rouse;
	Step repair;
	Step settle;
	Step due;
	Step handlers;
	Step refusals;
	TimestampTz next_settle; // of marks of keys
	TimestampTz next_expiry;
	TimestampTz expired_from;  // earlier expiries are left to the safety poll
	TimestampTz unslotted_due; // of queues that have no slot
	int64 next_poll;           // steady clock
	int64 last_look;           // steady clock
	int64 looks;               // through all queues
	int64 told_directly;       // queues without a slot, in this look
	bool left_alone;
	int unrepaired; // in the walk that is going on
	Trouble *rows;  // that could not be repaired
	Finding finding;
};

extern Worker worker;

Watch *watch_of(QueueSlot *queue);

template <typename Body>
void
each_queue(const Body &body)
{
	each_slot(MyDatabaseId, [&](QueueSlot *queue) { body(queue, watch_of(queue)); });
}

// For a worker that starts.
void make_steps(ProcessStatus *report);

// all: also queues that still gather, because this is the last time.
void notify_listeners(bool all);
// Wakes the sessions that wait, as many as there is something for.
void rouse_sessions();
// Has what came handled, if it has a handler.
void look_for_handlers();
// Writes the refusals that shared memory holds.
void record_refusals();
// Tells them whether they can rely on it.
void promise_to_rouse(bool rouses);
// One slice of the walk over expired leases; the next one follows at once.
void repair_leases();
// all: also where no commit said so.
void settle_keys(bool all);
// all: through all queues, also for messages that no commit announced.
void look_for_due(bool all);

} // namespace outbox
