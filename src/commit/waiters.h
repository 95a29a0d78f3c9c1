// Sessions that wait inside the server for something to claim.
//
// Guarantees: a session that registers before it looks is woken by everything that is told
// after its look. It is woken for its own queues only. Where more than 64 queues have a slot,
// some share a bit, and a wake-up of one is one of the other, too.
#pragma once

#include "server/pg.h"

namespace outbox {

using QueueMask = uint64;

constexpr QueueMask every_queue = PG_UINT64_MAX;

Size waiters_size();
// In shared memory of that size, as it was found or made.
void attach_waiters(bool found);

// This session, from here on.
void wait_for_queues(QueueMask queues);
// Since it registered, or was asked last.
bool was_woken();
void wait_no_more();

// Those of this database.
void wake_waiters(QueueMask queues);

} // namespace outbox
