// See lost_lease.h.

#include "message/lost_lease.h"

namespace outbox {

Attempt
lost_attempt(const PendingRow *row, int attempt_no, core::Record state, text *by)
{
	Attempt attempt = attempt_for(row, attempt_no, state, by);

	attempt.lost = row->leased;
	attempt.details.error_code = cstring_to_text(row->leased ? "LEASE_EXPIRED" : "RETRIES_EXHAUSTED");
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
	Tried before = tried(call, row->id);
	int most = ceiling(find_queue(call, row->queue), row->max_attempts);

	if (most == 0 || before.attempts < most)
		return Recovery::skipped;

	const core::Transition &transition = expect(core::State::pending, core::Event::claim, true);
	Attempt attempt = lost_attempt(row, next_attempt_no(before, row->id), transition.record, by);
	Attempt *appended = &attempt;

	if (remove(call, row, Wait::never) != Changed::done)
		return Recovery::skipped;
	append(call, &appended, 1);
	return Recovery::ended;
}

} // namespace outbox
