// A limit of time for code of a user that runs inside this process.
//
// Guarantees: once it is exceeded, or the process is asked to end, the process is asked to cancel what it does, as a
// statement is canceled, each second until the limit ends: code that catches the cancel gains a second. A process of
// ours ends, if the code catches three of them: it can always be ended. No setting of the session lifts the limit.
#pragma once

#include "server/pg.h"

namespace outbox {

// For code that is to be ended with its process alone.
constexpr int64 no_time_limit = PG_INT64_MAX;

void begin_time_limit(int64 us, bool may_end_process);
// Whether it was exceeded. A cancel that it has asked for, and that nothing has noticed, is forgotten.
bool end_time_limit();
bool is_time_over();
// For a signal handler: this process is to end, and cancels at once by itself.
void stop_limited_code();

} // namespace outbox
