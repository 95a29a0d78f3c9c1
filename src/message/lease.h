// Fencing: whether this worker holds this lease at this moment.
//
// Guarantee: token, worker and expiry are compared with the newest committed version of the pending
// row, before any lock. The change that follows applies to exactly this version or not at all
// (pending_row.h). So a stale worker changes nothing. The refusal says how the lease was lost.
#pragma once

#include "message/ledger.h"
#include "message/pending_row.h"

namespace outbox {

enum class Held { yes, gone, expired, other_token, other_worker };

struct Holding {
	Held held;
	PendingRow *row; // nullptr if the message is not pending
};

Holding look_at_lease(Call *call, const core::Uuid &id, const core::Uuid &token, const text *worker);
// The same for a row that was read before; nullptr if there was none.
Holding judge_lease(PendingRow *row, const core::Uuid &token, const text *worker);

// P7002 with its DETAIL.
[[noreturn]] void raise_lease_lost(Call *call, const Holding &holding, const core::Uuid &id, const core::Uuid &token,
								   const text *worker);

// The row of a message that must be pending: P7005 when it is not.
PendingRow *pending_row(Call *call, const core::Uuid &id);
[[noreturn]] void raise_not_pending(const core::Uuid &id);
// 55006.
[[noreturn]] void raise_leased(const PendingRow *row, const char *hint);

// If the ledger says that the message has ended, the pending row was written by hand: P7001, raised
// or, for an item of a batch, in *sqlstate. If it has ended just now, the row is not as it was
// loaded: Changed::outdated.
Changed check_not_ended(Call *call, PendingRow *row, const Tried &before, Wait wait, int *sqlstate = nullptr);
[[noreturn]] void raise_already_terminal(const PendingRow *row, const Tried &before);

// A ledger row for the pending row and its lease, if it has one.
Attempt attempt_for(const PendingRow *row, int attempt_no, core::Record state, text *recorded_by);

// Looks the transition up in the state table. If it is not listed, that is a bug and an ERROR.
const core::Transition &expect(core::State from, core::Event event, bool at_ceiling);

} // namespace outbox
