// Recording attempts in the ledger.
//
// Guarantees: append() is the one place through which each attempt goes, and so each end of a message. An attempt that
// is FAILED leaves a row in outbox.dead and a notice in the dead_letter_queue of its queue, in the same transaction.
#pragma once

#include "message/ledger.h"

namespace outbox {

void append(Call *call, Attempt *const *attempts, int count);

} // namespace outbox
