// What the background processes (launcher, worker, maintenance) have in common: how they
// are started, how they connect, how they report their status.
//
// Guarantees: no setting of a role or a database reaches them (timeouts, isolation,
// read-only, search_path, role); none of them runs during recovery or pg_upgrade; what
// they report is readable while they run and afterwards.
#pragma once

#include "commit/process_status.h"
#include "server/clock.h"

namespace outbox {

// Called while the library is preloaded.
void register_launcher();

// Starts a process for a database: 'worker' or 'maintenance'. nullptr when all background
// worker slots of the server are in use.
BackgroundWorkerHandle *start_process(const char *kind, Oid database);

// Signal handlers and session of a process. InvalidOid: shared catalogs only.
void connect_process(Oid database);
// For the log: outbox worker of database "x", by the database's name when the process connected.
const char *process_name();

// The lock_timeout of a process, unless it sets another one.
constexpr char usual_lock_timeout[] = "50ms";

// Sleeps until the latch is set or us have passed; less than 0 = until the latch is set.
// True if the configuration was reloaded.
bool sleep_process(int64 us);

} // namespace outbox
