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

// Changed::outdated: look again.
Changed
try_cancel(Call *call, const core::Uuid &id, text *reason, bool force, text *by, int *attempt_no)
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
		record_for_message(call, "MESSAGE_CANCELLED", row->queue, id, attempt.attempt_no, reason);
	}
	*attempt_no = attempt.attempt_no;
	return changed;
}

} // namespace

int
cancel_message(Call *call, const core::Uuid &id, text *reason, bool force, text *by)
{
	int attempt_no;

	while (try_cancel(call, id, reason, force, by, &attempt_no) != Changed::done)
		CHECK_FOR_INTERRUPTS();
	return attempt_no;
}

} // namespace outbox
