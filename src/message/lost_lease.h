// Messages that no worker can report on: a lease that expired, a ceiling that was
// lowered below the attempts already used.
//
// Guarantee: every lost lease leaves exactly one ledger row. Repair and the claim that takes
// the message over both use these functions.
#pragma once

#include "message/lease.h"
#include "message/pending_row.h"
#include "message/queue.h"

namespace outbox {

// What happened to a row that was looked at.
enum class Recovery {
	skipped, // another session was faster
	freed,   // recorded; the row is stored as `next` left it
	ended    // recorded as FAILED; the row is gone
};

// Records the attempt of an expired lease, on behalf of `by`. Unless that ends
// the message, next(row) sets the row: free, or leased again.
template <typename Next>
Recovery recover_expired(Call *call, PendingRow *row, text *by, const Next &next, Attempt *attempt);

// Due after the queue's repair_delay. Without a delay the message keeps its place among those that are due.
void free_lost_lease(PendingRow *row, const Queue *queue);

// Ends an unleased row whose attempts have used up its ceiling. skipped when they have
// not: the cached count is only a reason to ask the ledger.
Recovery end_used_up(Call *call, PendingRow *row, text *by);

// ---- implementation of the template

Attempt lost_attempt(const PendingRow *row, int attempt_no, core::Record state, text *by);

template <typename Next>
Recovery
recover_expired(Call *call, PendingRow *row, text *by, const Next &next, Attempt *attempt)
{
	Tried before = tried(call, row->id);
	const Queue *queue = find_queue(call, row->queue);
	int attempt_no = next_attempt_no(before, row->id);
	int most = ceiling(queue, row->max_attempts);
	const core::Transition &transition =
		expect(core::State::expired, core::Event::repair, most > 0 && attempt_no >= most);

	if (before.terminal)
	{
		if (hold(call, row, Wait::never) != Changed::done)
			return Recovery::skipped;
		raise_already_terminal(before, row->id);
	}
	*attempt = lost_attempt(row, attempt_no, transition.record, by);
	if (transition.to == core::State::pending)
	{
		count_attempt(row, attempt->attempt_no);
		next(row, queue);
		if (store(call, row, Wait::never) != Changed::done)
			return Recovery::skipped;
	}
	else if (remove(call, row, Wait::never) != Changed::done)
		return Recovery::skipped;
	append(call, &attempt, 1);
	return transition.to == core::State::pending ? Recovery::freed : Recovery::ended;
}

} // namespace outbox
