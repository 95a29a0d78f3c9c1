// cancel: an operator ends a pending message.
//
// Guarantees: it appends exactly one attempt, FAILED / CANCELLED, and removes the pending row, in one
// transaction. Only force breaks a live lease; its worker then gets P7002. The attempt also records
// a lease that had expired: every lost lease leaves one row.

#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "message/lease.h"
#include "message/order.h"
#include "message/record.h"
#include "commit/transaction.h"

namespace outbox {

namespace {

core::State
state_now(const PendingRow *row)
{
	if (!row->leased)
		return core::State::pending;
	return row->lease_expires_at > GetCurrentTimestamp() ? core::State::leased : core::State::expired;
}

// Changed::outdated: look again.
Changed
try_cancel(Call *call, const core::Uuid &id, text *reason, bool force, text *by, int *attempt_no)
{
	PendingRow *row = pending_row(call, id);
	core::State state = state_now(row);
	Tried before;
	Attempt attempt = {};
	Attempt *appended = &attempt;
	Changed changed;

	if (state == core::State::leased && !force)
		raise_leased(row, "Use force => true to cancel it anyway.");
	before = tried(call, id);
	if (check_not_ended(call, row, before, Wait::for_row) != Changed::done)
		return Changed::outdated;
	attempt = attempt_for(row, next_attempt_no(before, id), expect(state, core::Event::cancel, false).record, by);
	attempt.lost = state == core::State::expired;
	attempt.wait = Wait::for_row;
	attempt.details.error_code = cstring_to_text(cancelled_code);
	attempt.details.error_message = reason;
	changed = remove(call, row, Wait::for_row);
	if (changed == Changed::done)
	{
		append(call, &appended, 1);
		pass_turn(call, row, false);
		note_count(row->queue, Counter::cancelled);
	}
	*attempt_no = attempt.attempt_no;
	return changed;
}

} // namespace

OUTBOX_FUNCTION(outbox_cancel)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	bool force = required_bool(fcinfo, 2, "force");
	text *by = current_user_name();
	int attempt_no;
	Call call;

	begin_call(&call, "cancel()");
	while (try_cancel(&call, id, reason, force, by, &attempt_no) != Changed::done)
		CHECK_FOR_INTERRUPTS();
	end_call(&call);
	PG_RETURN_INT32(attempt_no);
}

} // namespace outbox
