// Maintenance as the worker asks for it.
//
// Guarantees: at most one maintenance process a database at a time; what it could not do is
// asked for again, after a pause that grows while it keeps failing.
#pragma once

#include "commit/shared.h"

namespace outbox {

// In a transaction: what there is to do, in a database that is written to by our functions: a
// restore must not find its tables there already, nor lose them. How long old data is kept is
// set here or for this database, whose settings reach only sessions that begin later.
void look_for_upkeep(DatabaseSlot *slot);

// Starts the process if there is something to do, it does not run, and its pause is over.
// Old data alone is dealt with once a minute.
void ask_for_maintenance(DatabaseSlot *slot);
// The settings were read anew: old data is not to wait for its minute.
void hurry_maintenance();
// Notices that it has ended.
void follow_maintenance(const DatabaseSlot *slot);
// The worker leaves: whoever it leaves for wants nobody here.
void end_maintenance();

} // namespace outbox
