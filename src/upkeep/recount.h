// Counts what the queues hold, so that commits can keep the numbers from there on (Kept in shared.h).
//
// Guarantees: one statement under one snapshot, so the numbers are exact for what was committed then, but for
// transactions that were between becoming visible and being told of in that moment: the next count mends it. A crash, a
// prepared transaction and whatever else no commit tells of makes numbers unknown, or wrong until the next count.
#pragma once

#include "server/pg.h"

namespace outbox {

// Whether a queue was not counted yet, or long ago.
bool lacks_count();
// In a transaction of its own, READ COMMITTED, as the owner.
void count_queues();

} // namespace outbox
