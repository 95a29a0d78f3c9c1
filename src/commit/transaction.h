// What a transaction did, told to the rest of the server at its commit: queues that have
// something claimable now or later, leases that will expire, what is to be counted.
//
// Guarantees: what was rolled back, to a savepoint too, is not told and not counted.
// With a live worker a commit tells it by atomic operations in shared memory, which can
// neither fail nor wait, and the worker notifies the listeners; without one the
// transaction notifies them itself, once per queue, just before its commit. PREPARE
// TRANSACTION works (a pending NOTIFY would forbid it): what a prepared transaction did
// is found by the worker's safety poll, and is not counted. With outbox.async_claim a
// transaction whose WAL, to the last record, is of leases commits asynchronously, and no
// other does.
#pragma once

#include "commit/entries.h"
#include "commit/shared.h"

namespace outbox {

// A message of the queue becomes claimable at that time. now: the clock of the call.
void note_due(const text *queue, TimestampTz at, TimestampTz now);
void note_expiry(TimestampTz at);
void note_count(const text *queue, Counter counter, int64 n = 1);
// A row of outbox.pending was made or removed. A change is both.
void note_made(const Entry &entry);
void note_removed(const Entry &entry);
// So many more dead letters wait for a decision.
void note_dead(const text *queue, int more);
void note_latency(const text *queue, int ms);
void note_dropped(const text *queue);
// Whether nothing was enqueued since the server or the extension was made, as far as is known;
// and the OID of the table that something is enqueued into now.
bool is_first_enqueue();
void note_first_enqueue(Oid messages);
void note_created(const text *queue);

// Whether the transaction has written nothing yet, or nothing but leases; and that what it
// has written since it was so were leases, too.
bool wrote_only_leases();
void note_leases();

// For whoever changes what the launcher watches: it is told at the end of the transaction,
// however that ends, and looks for the extension in this database if that may have changed.
void note_news(bool of_extension);

// At once, and by the worker: for changes of this database that nobody noted.
void have_all_looked_at();

// 0 to 1. Asking lets go of what nobody has to read any more, which a NOTIFY that fails for want
// of room does not: without it a full queue may stay full for ever.
double notification_queue_usage();

// Called once, when the library is loaded.
void follow_transactions();

} // namespace outbox
