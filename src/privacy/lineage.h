// Where the database lives: in which cluster, as which database, on which timeline.
//
// Guarantee: it is another one after a restore from a dump, after point-in-time recovery, and after the promotion of a
// standby. Then erasures may be missing that were made in the meantime, and outbox.check() says so.
#pragma once

#include "server/pg.h"

namespace outbox {

// nullptr during recovery.
text *lineage_of_database();

} // namespace outbox
