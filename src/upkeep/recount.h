// Counts what the queues hold, so that commits can keep the numbers from there on (Kept in shared.h).
//
// Guarantees: one statement under one snapshot, so the numbers are exact for what was committed then, except for
// transactions that were visible but not yet announced at that moment: the next count corrects them. A crash, a
// prepared transaction or any other change that no commit announces makes numbers unknown, or wrong until the next
// count.
#pragma once

#include "server/pg.h"

namespace outbox {

// Whether a queue was not counted yet, or long ago.
bool lacks_count();
// In a separate transaction, READ COMMITTED, as the owner.
void count_queues();

} // namespace outbox
