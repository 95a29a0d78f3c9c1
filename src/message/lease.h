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

// P7005.
[[noreturn]] void raise_not_pending(const core::Uuid &id);

// Applies change(row) to the row if the lease is held and stores it, looking again
// whenever the row moved. Without waiting, busy is an answer.
enum class Applied { done, lost, busy };
template <typename Change>
Applied
apply_to_lease(Call *call, const core::Uuid &id, const core::Uuid &token, const text *worker, const Change &change,
			   PendingRow **result)
{
	for (;;)
	{
		Holding holding = look_at_lease(call, id, token, worker);
		Changed changed;

		if (holding.held != Held::yes)
			return Applied::lost;
		change(holding.row);
		changed = store(call, holding.row, Wait::never);
		*result = holding.row;
		if (changed != Changed::outdated)
			return changed == Changed::done ? Applied::done : Applied::busy;
		CHECK_FOR_INTERRUPTS();
	}
}

// A ledger row for the pending row and the lease it carries, if any.
Attempt attempt_for(const PendingRow *row, int attempt_no, core::Record state, text *recorded_by);

// The state table's answer, or an ERROR: a transition that is not listed is a bug.
const core::Transition &expect(core::State from, core::Event event, bool at_ceiling);

} // namespace outbox
