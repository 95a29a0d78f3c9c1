// The extension's configuration parameters.
//
// Guarantee: a value that cannot be used is refused when it is set. The check itself raises no
// ERROR: the postmaster must survive a reload of its file.
#pragma once

#include "server/pg.h"

namespace outbox {

// Called once, when the library is loaded.
void define_settings();

// outbox.partition_interval: length of a dated partition.
int64 partition_interval_ms();

// outbox.idempotency_window: how long a key is remembered, in milliseconds;
// PG_INT64_MAX if keys are kept without limit.
int64 idempotency_window_ms();

// outbox.async_claim: whether a transaction that only leased commits asynchronously.
bool leases_commit_asynchronously();

// outbox.max_delay: no lease and no delay that a caller asks for is longer.
int64 max_delay_us();

// outbox.hold: nothing is claimed and nothing is announced, as if each queue were paused.
bool everything_is_held();

// outbox.worker: whether background workers run.
bool workers_wanted();

// outbox.databases: whether a worker is wanted for the database of that name.
bool is_wanted_database(const char *name);

// outbox.discovery_interval
int64 discovery_interval_us();

// outbox.poll_interval: how long the worker sleeps at most.
int64 poll_interval_us();

// outbox.notify_gather: time between two notifications of one queue.
int64 notify_gather_us();

// outbox.seal_interval: 0 = no background process seals.
int64 seal_interval_us();

// outbox.seal_key_file: empty = none.
const char *seal_key_file();

// outbox.handler_workers: processes of a database that run handlers at the same time.
constexpr int most_handler_workers = 16;
int handler_workers();

// outbox.count_limit: index entries that outbox.status reads for each of its counts.
int64 count_limit();

// outbox.max_batch: messages in one call.
int max_batch();

// outbox.max_queues: queues that have a place in shared memory.
int max_queues();

// outbox.master_key_file, outbox.master_key_command: where the master keys come from; empty if that is not set. The
// generation grows with each reload of the configuration.
const char *master_key_file();
const char *master_key_command();
uint64 master_key_generation();

// For SQL and names that are read as the owner, so that nothing of the caller is found. Returns the
// nest level for AtEOXact_GUC().
int pin_search_path();

} // namespace outbox
