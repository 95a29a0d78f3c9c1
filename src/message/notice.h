// Notices of dead letters: the queue option dead_letter_queue.
//
// Guarantees: the transaction that ends a message as FAILED, in whatever way, enqueues one message that
// tells of it, or it does not end the message. It never does so twice for one outbox_id. Telling waits
// for no row and no key, and costs nothing where nothing dies.
//
// Shape: append() (record.h) is the one place through which each end goes, and calls tell_dead(). A
// notice has no partition_key, so it takes no number that another transaction might hold.
#pragma once

#include "message/ledger.h"

namespace outbox {

// For a FAILED attempt that was appended. A dead_letter_queue that is gone is reported as a WARNING.
void tell_dead(Call *call, const Attempt *attempt);

// Whether it may raise an ERROR for what is in the tables, other than pending, or not there.
bool may_fail_to_tell(Call *call);

} // namespace outbox
