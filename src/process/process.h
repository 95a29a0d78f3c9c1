// Starting, connecting and sleeping, for all background processes: launcher, worker, maintenance, handlers.
//
// Guarantees: settings of roles and databases (timeouts, isolation, read-only, search_path, role) have
// no effect on them. They do not run during recovery or pg_upgrade. Their status can be read while
// they run and afterwards.
#pragma once

#include "commit/process_status.h"
#include "server/clock.h"

namespace outbox {

// Called while the library is preloaded.
void register_launcher();

// Starts a process for a database: 'worker', 'maintenance' or 'handler'. nullptr if no background worker slot of
// the server is free.
BackgroundWorkerHandle *start_process(const char *kind, Oid database);

// Signal handlers and session of a process. InvalidOid: shared catalogs only. on_sigterm serves from the first
// moment on.
void connect_process(Oid database, pqsigfunc on_sigterm = die);
// The same for a process that is soon over, which SIGTERM cancels and then ends without a message. It may wait for a
// command that needs exclusive use of the database, which waits for it.
void connect_or_end(Oid database);
bool is_asked_to_end();
// A cancel that came too late is forgotten.
void forget_cancel();

// No background worker slot was free: processes that can end soon make room.
void note_shortage();
bool is_short();

// For the log: outbox worker of database "x", by the database's name when the process connected.
const char *process_name();

// The lock_timeout of a process, unless it sets another one.
constexpr char usual_lock_timeout[] = "50ms";

// Sleeps until the latch is set or us have passed; less than 0 = until the latch is set.
// True if the configuration was reloaded.
bool sleep_process(int64 us);

} // namespace outbox
