// See aging.h. Of one priority the effective one falls with the time since which a message waits. So those that come
// before another message are a range of these times, and its end is found by one multiplication.

#include "aging.h"

#include <algorithm>

namespace outbox::core {

namespace {

// So far from the greatest number that the sum with a priority does not pass it.
constexpr int64_t longest_wait = INT64_MAX - 1000;

int64_t
waited(int64_t since, int64_t now) noexcept
{
	int64_t wait;

	if (since == since_ever)
		return longest_wait;
	if (since >= now)
		return 0;
	return __builtin_sub_overflow(now, since, &wait) ? longest_wait : std::min(wait, longest_wait);
}

} // namespace

Rank
rank_of(int priority, int64_t since, int64_t now, int64_t aging) noexcept
{
	return {priority + waited(since, now) / aging, priority};
}

bool
comes_before(const Rank &a, const Rank &b) noexcept
{
	return a.effective > b.effective || (a.effective == b.effective && a.priority > b.priority);
}

int64_t
end_of_those_before(const Rank &rank, int priority, int64_t now, int64_t aging) noexcept
{
	// So often must they have risen.
	int64_t steps = std::max<int64_t>(rank.effective - priority + (priority < rank.priority), 0);
	int64_t wait;
	int64_t end;

	if (__builtin_mul_overflow(steps, aging, &wait) || wait > longest_wait)
		return since_ever;
	// Nothing else has waited since before all times.
	if (__builtin_sub_overflow(now, wait, &end))
		return since_ever + 1;
	return end == INT64_MAX ? end : end + 1;
}

} // namespace outbox::core
