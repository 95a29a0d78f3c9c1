// Sessions that wait inside the server for something to claim.
//
// Guarantees: a session that registers before it looks is woken by each change that follows its look, or by as many
// changes as leave it nothing to get: a wake-up that is for one message reaches one session. A wake-up is never lost. A
// session that leaves without having looked hands on what it was woken for, and so does one that was busy with
// something else.
//
// Shape: the background worker counts what can be claimed, and wakes as many of those that sleep. To one of them it
// gives a call, which names the queue (`called`). From then on until the session has looked in vain (`looking`), or
// leaves, it stands for as many messages as it wants, and the worker wakes no other for them. A session that is awake
// is asked to look again before it sleeps (`again`): its look may have begun before the message was there.
//
// The session writes queues, asleep and looking, and then reads called and again; the worker writes these and then
// reads those. There are full barriers on both sides, so one of the two notices the other.
//
// If more than 64 queues have a slot, some share a bit; then all who wait for one of them are woken.
#pragma once

#include "server/pg.h"

namespace outbox {

using QueueMask = uint64;

constexpr QueueMask every_queue = PG_UINT64_MAX;

Size waiters_size();
// found: the shared memory existed already.
void attach_waiters(bool found);

// ---- the session that waits

// Registers it. every_queue: it is woken for any queue, and stands for nothing.
void wait_for_queues(QueueMask queues, int wanted);
// Before each look.
void begin_look();
// After a look in vain: whether it may sleep, which ends when it is called.
bool fall_asleep();
bool is_called();
// True if it was called.
bool wake_up();
// It leaves. found_in: of which queues it has found something. The result is what others are to be woken for.
QueueMask stop_waiting(QueueMask found_in);
QueueMask stop_waiting_after_nothing();
// The nesting level of transactions at which it waits; 0 = it does not.
int waits_at_level();

// ---- the worker of its database

struct Sleepers {
	bool any;       // that have not been woken
	int64 wanted;   // by them, and by those who were woken
	int64 standing; // what these stand for
};

// Those who are awake look again.
Sleepers count_sleepers(QueueMask queue);
// Wakes as many as get something of so many messages, which were counted after the sleepers. False, and none is woken,
// if one has left meanwhile: the count may hold what it took. afresh: those who were woken before stand for nothing.
bool wake_for(QueueMask queue, int64 messages, const Sleepers &before, bool afresh);
void wake_all(QueueMask queues);
// Those who wait for a queue that has no slot.
void wake_unslotted();

} // namespace outbox
