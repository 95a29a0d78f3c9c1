// Maintenance as the worker requests it.
//
// Guarantees: at most one maintenance process runs for a database; work that failed is
// requested again, after a pause that grows while it keeps failing.
#pragma once

#include "commit/shared.h"

namespace outbox {

// In a transaction: looks for work, but only in a database that was enqueued into. A restore must not
// find its tables there already, nor lose them.
void look_for_upkeep();

// Starts the process if there is work, it does not run, and its pause is over. For old data alone it
// starts once a minute.
void ask_for_maintenance(DatabaseSlot *slot);
// Microseconds until a window is to be sealed (outbox.seal_interval); PG_INT64_MAX: not before something else wakes the
// worker.
int64 seal_in();
// After a reload of the settings: old data does not wait for its minute.
void hurry_maintenance();
// Notices that it has ended.
void follow_maintenance(const DatabaseSlot *slot);
// The worker leaves for a command that needs exclusive use of the database.
void end_maintenance();

} // namespace outbox
