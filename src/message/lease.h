// Fencing: whether this worker holds this lease at this moment.
//
// Guarantee: token, worker and expiry are compared with the newest committed version
// of the pending row, before any lock; the change that follows applies to exactly that
// version or not at all (pending_row.h). So a stale worker changes nothing, and the
// refusal says how the lease was lost.
#pragma once

#include "message/ledger.h"
#include "message/pending_row.h"

namespace outbox {

enum class Held { yes, gone, expired, other_token, other_worker };

struct Holding {
	Held held;
	PendingRow *row; // nullptr when the message is not pending
};

Holding look_at_lease(Call *call, const core::Uuid &id, const core::Uuid &token, const text *worker);
// The same of a row that was read before; nullptr when there was none.
Holding judge_lease(PendingRow *row, const core::Uuid &token, const text *worker);

// P7002 with its DETAIL.
[[noreturn]] void raise_lease_lost(Call *call, const Holding &holding, const core::Uuid &id, const core::Uuid &token,
								   const text *worker);

// The row of a message that must be pending: P7005 when it is not.
PendingRow *pending_row(Call *call, const core::Uuid &id);
// 55006.
[[noreturn]] void raise_leased(const PendingRow *row, const char *hint);

// A message that has ended has no pending row, unless one was written by hand: P7001, raised or,
// where an item answers for itself, in *sqlstate. It may also have ended just now: then the row
// is not as it was loaded.
Changed check_not_ended(Call *call, PendingRow *row, const Tried &before, Wait wait, int *sqlstate = nullptr);

// A ledger row for the pending row and the lease it carries, if any.
Attempt attempt_for(const PendingRow *row, int attempt_no, core::Record state, text *recorded_by);

// The state table's answer, or an ERROR: a transition that is not listed is a bug.
const core::Transition &expect(core::State from, core::Event event, bool at_ceiling);

} // namespace outbox
