// repair_expired_leases as other parts call it.
#pragma once

#include "queue.h"

namespace outbox {

// Repairs at most batch_size expired leases on behalf of `by`; queues NIL = all. A row
// a lease goes to result, the call that wants them, unless it is nullptr. Returns how
// many were repaired.
int repair(Work *work, int batch_size, text *by, const List *queues, FunctionCallInfo result);

}	// namespace outbox
