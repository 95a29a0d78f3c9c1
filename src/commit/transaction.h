// What a transaction announces to the rest of the server at its commit: queues with
// messages that are claimable now or later, leases that will expire, and counts.
//
// Guarantees: work that was rolled back, also to a savepoint, is neither announced nor counted.
// With a running worker a commit announces by atomic operations in shared memory, which can
// neither fail nor wait, and the worker notifies the listeners. Without one the
// transaction notifies them itself, once per queue, just before its commit. PREPARE
// TRANSACTION works (a pending NOTIFY would forbid it): the worker's safety poll finds
// what a prepared transaction did. It is not counted. With outbox.async_claim a transaction
// commits asynchronously only if all its WAL records belong to leases.
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
// more: by how much the number of open dead letters grows.
void note_dead(const text *queue, int more);
// A message of an ordered queue was written behind another, or ended. marked: with a mark in
// outbox.key_marks, which is to be settled.
void note_turn(const text *queue, bool marked);
void note_latency(const text *queue, int ms);
void note_dropped(const text *queue);
// Whether no enqueue into this outbox is known since the server started; and the OID of the table
// that a message is enqueued into now.
bool is_first_enqueue();
void note_first_enqueue(Oid messages);
void note_created(const text *queue);
void note_altered(const text *queue);

// Whether the transaction has written nothing but leases; and that what it has written since then
// were leases, too.
bool wrote_only_leases();
void note_leases();

// For changes that concern the launcher: it is notified at the end of the transaction,
// on commit and on abort, and scans this database if the extension may have changed.
void note_news(bool of_extension);
// Our extension, or it was changed. After note_news(true).
void note_made_anew();

// Has the worker look through all queues now: for changes that no transaction noted.
void have_all_looked_at();

// From 0 to 1. The call also frees entries that all listeners have read. A NOTIFY that fails because
// the queue is full does not, so the queue might stay full without this call.
double notification_queue_usage();

// Called once, when the library is loaded.
void follow_transactions();

} // namespace outbox
