// A limit of time for code of a user that runs inside this process.
//
// Guarantees: once it is exceeded, the process is asked to cancel what it does, as a statement is canceled, each
// second until the limit ends: code that catches the cancel gains a second. No setting of the session lifts it.
#pragma once

#include "server/pg.h"

namespace outbox {

void begin_time_limit(int64 us);
// Whether it was exceeded. A cancel that it has asked for, and that nothing has noticed, is forgotten.
bool end_time_limit();
bool is_time_over();

} // namespace outbox
