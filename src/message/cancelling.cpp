// See cancelling.h.

#include "message/cancelling.h"

#include "message/audit_event.h"
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

Changed
refuse_leased(const PendingRow *row, int *sqlstate)
{
	if (sqlstate == nullptr)
		raise_leased(row, "Use force => true to cancel it anyway.");
	*sqlstate = ERRCODE_OBJECT_IN_USE;
	return Changed::done;
}

// Changed::outdated: look again.
Changed
try_cancel(Call *call, const core::Uuid &id, const Cancelling &how, int *attempt_no, int *sqlstate)
{
	PendingRow *row = find_pending(call, id);
	core::State state = row != nullptr ? state_now(row) : core::State::absent;
	Tried before;
	Attempt attempt = {};
	Attempt *appended = &attempt;
	Changed changed;

	*attempt_no = 0;
	if (row == nullptr)
		return Changed::done;
	if (state == core::State::leased && !how.force)
		return refuse_leased(row, sqlstate);
	before = tried(call, id);
	changed = check_not_ended(call, row, before, call->wait, sqlstate);
	if (changed != Changed::done || before.terminal)
		return changed;
	attempt = attempt_for(row, next_attempt_no(before, id), expect(state, core::Event::cancel, false).record, how.by);
	attempt.lost = state == core::State::expired;
	attempt.wait = call->wait;
	attempt.details.error_code = cstring_to_text(cancelled_code);
	attempt.details.error_message = how.reason;
	changed = remove(call, row, call->wait);
	if (changed == Changed::done)
	{
		append(call, &appended, 1);
		pass_turn(call, row, false);
		note_count(row->queue, Counter::cancelled);
		record_for_message(call, Audited::cancelled, row->queue, id, attempt.attempt_no, how.reason);
		*attempt_no = attempt.attempt_no;
	}
	return changed;
}

} // namespace

int
cancel_message(Call *call, const core::Uuid &id, const Cancelling &how, int *sqlstate)
{
	int attempt_no;
	Changed changed;

	do
	{
		CHECK_FOR_INTERRUPTS();
		changed = try_cancel(call, id, how, &attempt_no, sqlstate);
	} while (changed == Changed::outdated);
	if (sqlstate != nullptr && changed == Changed::busy)
		*sqlstate = ERRCODE_LOCK_NOT_AVAILABLE;
	return attempt_no;
}

} // namespace outbox
