// break_lease: an operator takes a lease from the worker that holds it.
//
// Guarantees: as if the lease had expired at this moment and were repaired, in one transaction: it leaves exactly one
// ledger row, ZOMBIE_REQUEUE with LEASE_BROKEN, or FAILED at the ceiling, which ends the message. From then on the
// worker's token is stale (P7002). A completion that comes first wins: then there is nothing to break.

#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "message/lost_lease.h"

namespace outbox {

namespace {

PendingRow *
leased_row(Call *call, const core::Uuid &id)
{
	PendingRow *row = find_pending(call, id);

	if (row == nullptr)
		raise_not_pending(id);
	if (!row->leased)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("message %s is not leased", shown(id)),
				 errdetail("It is pending, and no worker holds it.")));
	return row;
}

// Changed::outdated: look again.
Changed
try_break(Call *call, const core::Uuid &id, text *reason, text *by, int *attempt_no)
{
	PendingRow *row = leased_row(call, id);
	Tried before = tried(call, id);
	const Queue *queue = find_queue(call, row->queue);
	int most = ceiling(queue, row->max_attempts);
	Attempt attempt = {};
	Attempt *appended = &attempt;
	Changed changed;

	if (before.terminal)
	{
		if (hold(call, row, Wait::for_row) != Changed::done)
			return Changed::outdated;
		raise_already_terminal(before, id);
	}
	*attempt_no = next_attempt_no(before, id);

	const core::Transition &transition =
		expect(core::State::expired, core::Event::repair, most > 0 && *attempt_no >= most);

	attempt = attempt_for(row, *attempt_no, transition.record, by);
	attempt.lost = true;
	attempt.details.error_code = cstring_to_text(broken_code);
	attempt.details.error_message = reason;
	if (transition.to == core::State::pending)
	{
		count_attempt(row, *attempt_no);
		free_lost_lease(row, queue);
		changed = store(call, row, Wait::for_row);
	}
	else
		changed = remove(call, row, Wait::for_row);
	if (changed == Changed::done)
		append(call, &appended, 1);
	return changed;
}

} // namespace

OUTBOX_FUNCTION(outbox_break_lease)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	text *by = cstring_to_text(GetUserNameFromId(GetUserId(), false));
	int attempt_no;
	Call call;

	begin_call(&call, "break_lease()");
	while (try_break(&call, id, reason, by, &attempt_no) != Changed::done)
		CHECK_FOR_INTERRUPTS();
	end_call(&call);
	PG_RETURN_INT32(attempt_no);
}

} // namespace outbox
