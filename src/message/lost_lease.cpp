// See lost_lease.h.

#include "message/lost_lease.h"

namespace outbox {

Attempt
lost_attempt(const PendingRow *row, int attempt_no, core::Record state, const LostLease &lost)
{
	Attempt attempt = attempt_for(row, attempt_no, state, lost.by);

	attempt.lost = row->leased;
	attempt.wait = lost.wait;
	attempt.details.error_code = cstring_to_text(lost.code);
	attempt.details.error_message = lost.reason;
	return attempt;
}

void
free_lost_lease(PendingRow *row, const Queue *queue)
{
	TimestampTz now = GetCurrentTimestamp();
	int64 delay_us = queue != nullptr ? queue->repair_delay_us : 0;

	clear_lease(row);
	row->next_attempt_at = delay_us > 0 ? later_or_last(now, delay_us) : Min(row->next_attempt_at, now);
}

Recovery
end_used_up(Call *call, PendingRow *row, text *by)
{
	const LostLease lost = {by, exhausted_code, nullptr, Wait::never};
	Tried before = tried(call, row->id);

	if (!reaches_ceiling(find_queue(call, row->queue), row->max_attempts, before.attempts))
		return Recovery::skipped;

	const core::Transition &transition = expect(core::State::pending, core::Event::claim, true);
	Attempt attempt = lost_attempt(row, next_attempt_no(before, row->id), transition.record, lost);
	Attempt *appended = &attempt;

	if (remove(call, row, lost.wait) != Changed::done)
		return Recovery::skipped;
	append(call, &appended, 1);
	pass_turn(call, row, true);
	return Recovery::ended;
}

} // namespace outbox
