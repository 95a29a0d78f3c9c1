// Ending a pending message from outside.
//
// Guarantees: it appends exactly one attempt, FAILED / CANCELLED, and removes the pending row, in one transaction. Only
// force breaks a live lease; its worker then gets P7002. The attempt also records a lease that had expired: every
// lost lease leaves one row.
#pragma once

#include "rows/call.h"

namespace outbox {

struct Cancelling {
	text *reason;
	bool force;
	text *by; // recorded_by
};

// Returns the number of the attempt; 0: it is not pending. What else refuses it is raised or, for an item of a batch,
// in *sqlstate.
int cancel_message(Call *call, const core::Uuid &id, const Cancelling &how, int *sqlstate = nullptr);

} // namespace outbox
