// Messages that no worker can report on: their lease expired or was broken, or their ceiling was
// lowered below the attempts already used.
//
// Guarantee: every lost lease leaves exactly one ledger row. Repair, the claim that takes the message
// over, and break_lease use these functions.
#pragma once

#include "message/audit_notes.h"
#include "message/lease.h"
#include "message/order.h"
#include "message/pending_row.h"
#include "message/queue.h"
#include "message/record.h"

namespace outbox {

// What happened to a row that was looked at.
enum class Recovery {
	skipped, // the row was changed, or another session holds it
	untried, // the lease hung on that of another message: it is gone, and nothing was recorded
	freed,   // recorded; the row is stored as `next` left it
	ended    // recorded as FAILED; the row is gone
};

// How the loss is recorded.
struct LostLease {
	text *by; // on whose behalf
	const char *code;
	text *reason; // or nullptr
	Wait wait;
};

// Records the attempt of a lost lease, and gives back what was leased behind it in its key. Unless that ends the
// message, next(row, queue) frees the row or leases it again.
template <typename Next>
Recovery recover_lease(Call *call, PendingRow *row, const LostLease &lost, const Next &next, Attempt *attempt);

template <typename Next>
Recovery
recover_expired(Call *call, PendingRow *row, text *by, const Next &next, Attempt *attempt)
{
	if (!row->held_back)
		return recover_lease(call, row, {by, expired_code, nullptr, Wait::never}, next, attempt);
	if (release_run(call, row, Wait::never) != Changed::done)
		return Recovery::skipped;
	clear_lease(row);
	if (store(call, row, Wait::never) != Changed::done)
		return Recovery::skipped;
	note_audited(call, {Audited::released, row->queue, by, row->id, row->attempt_count + 1});
	return Recovery::untried;
}

// Makes it due after the queue's repair_delay. Without a delay the message keeps its place among the due ones.
void free_lost_lease(PendingRow *row, const Queue *queue);

// Ends an unleased row that has used up its attempts. skipped if it has not: the count in the row is
// only a reason to look at the ledger.
Recovery end_used_up(Call *call, PendingRow *row, text *by);

// ---- implementation of the template

Attempt lost_attempt(const PendingRow *row, int attempt_no, core::Record state, const LostLease &lost);

template <typename Next>
Recovery
recover_lease(Call *call, PendingRow *row, const LostLease &lost, const Next &next, Attempt *attempt)
{
	Tried before = tried(call, row->id);
	const Queue *queue = find_queue(call, row->queue);
	int attempt_no = next_attempt_no(before, row->id);
	const core::Transition &transition =
		expect(core::State::expired, core::Event::repair, ends_at_ceiling(queue, row, attempt_no));

	if (check_not_ended(call, row, before, lost.wait) != Changed::done ||
		release_run(call, row, lost.wait) != Changed::done)
		return Recovery::skipped;
	*attempt = lost_attempt(row, attempt_no, transition.record, lost);
	if (transition.to == core::State::pending)
	{
		count_attempt(row, attempt->attempt_no);
		next(row, queue);
		if (store(call, row, lost.wait) != Changed::done)
			return Recovery::skipped;
	}
	else if (remove(call, row, lost.wait) != Changed::done)
		return Recovery::skipped;
	append(call, &attempt, 1);
	if (lost.code == expired_code)
		note_audited(call, {Audited::repaired, row->queue, lost.by, row->id, attempt_no, 0, attempt->state});
	if (transition.to == core::State::pending)
		return Recovery::freed;
	// What was given back can become the head only in the next command.
	CommandCounterIncrement();
	pass_turn(call, row, true);
	return Recovery::ended;
}

} // namespace outbox
