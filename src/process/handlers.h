// The processes that handle messages, as the worker starts them.
//
// Guarantees: a process is started, or one that is idle called, after something has come to a queue that has a handler,
// so that one looks at what has come. No more than outbox.handler_workers run in a database. Where no background worker
// slot is free it tries again, and says so once; databases take turns.
#pragma once

#include "commit/shared.h"

namespace outbox {

// Something has come.
void want_handlers();
// If so, and one may start.
void start_handlers(DatabaseSlot *slot);
// Microseconds; PG_INT64_MAX = not before something else happens.
int64 handlers_start_in();
// The worker leaves for a command that needs exclusive use of the database.
void end_handlers();

} // namespace outbox
