// Waking listeners: LISTEN outbox_pending, payload = the queue's name.
//
// Guarantees: one notification per queue and transaction, with its commit, however many
// messages it enqueued; none for what was rolled back, to a savepoint too. PREPARE
// TRANSACTION works after an enqueue (a pending NOTIFY would forbid it): a prepared
// transaction wakes nobody, its messages are found by polling.
#pragma once

#include "pg.h"

namespace outbox {

void note_wakeup(const text *queue);

// Called once, when the library is loaded.
void register_wakeups();

}	// namespace outbox
