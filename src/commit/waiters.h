// Sessions that wait inside the server for something to claim.
//
// Guarantees: a session that registers before it looks is woken by each notification that follows
// its look, and only for the queues that it waits for. If more than 64 queues have a slot, some
// share a bit and are woken together.
#pragma once

#include "server/pg.h"

namespace outbox {

using QueueMask = uint64;

constexpr QueueMask every_queue = PG_UINT64_MAX;

Size waiters_size();
// found: the shared memory existed already.
void attach_waiters(bool found);

// Registers this session.
void wait_for_queues(QueueMask queues);
// Since it registered, or since the last call.
bool was_woken();
void wait_no_more();

// Wakes the sessions of this database that wait for one of the queues.
void wake_waiters(QueueMask queues);

} // namespace outbox
