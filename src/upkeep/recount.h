// Counts what the queues hold; from then on commits keep the counts (Kept in shared.h).
//
// Guarantees: one statement under one snapshot, so the numbers are exact for what was committed then, except for
// transactions that were visible but not yet announced at that moment: the next count corrects them. A crash, a
// prepared transaction or any other change that no commit announces makes them unknown, or wrong until the next count.
#pragma once

#include "server/pg.h"

namespace outbox {

// Whether a queue needs a count.
bool lacks_count();
// In a separate transaction, READ COMMITTED, as the owner.
void count_queues();

} // namespace outbox
