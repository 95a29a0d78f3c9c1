// Maintenance as the worker asks for it.
//
// Guarantees: at most one maintenance process a database at a time; what it could not do is
// asked for again, after a pause that grows while it keeps failing.
#pragma once

#include "shared.h"

namespace outbox {

// Starts the process, unless it runs or its pause is not over.
void ask_for_maintenance(DatabaseSlot *slot);
// Notices that it has ended.
void follow_maintenance(const DatabaseSlot *slot);

}	// namespace outbox
