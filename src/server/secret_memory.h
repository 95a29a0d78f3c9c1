// Memory for keys.
//
// Guarantees: as far as the system allows, it is never swapped out, is in no core file, and in no process that is
// forked from this one. It is wiped when the process ends.
#pragma once

#include "server/pg.h"

namespace outbox {

// Zeros, for the life of the process.
void *secret_memory(size_t size);

} // namespace outbox
