// See rate.h.

#include "rate.h"

#include <algorithm>
#include <cmath>

namespace outbox::core {

namespace {

constexpr double second_ns = 1e9;
// Long enough for every rate that makes sense; the sum of two still fits.
constexpr int64_t most_ns = INT64_C(1) << 61;
// Messages gather for so long.
constexpr int64_t gather_ns = 10 * 1000 * 1000;

int64_t
bounded(double ns) noexcept
{
	return ns < static_cast<double>(most_ns) ? static_cast<int64_t>(ns) : most_ns;
}

int64_t
accrued_from(const Rate &rate, int64_t spent_until, int64_t now) noexcept
{
	return std::max(spent_until, now - rate.burst_ns);
}

} // namespace

Rate
rate_of(double per_second, int burst) noexcept
{
	Rate rate = {second_ns / per_second, 0};

	rate.burst_ns = burst > 0 ? cost_ns(rate, burst) : std::max(cost_ns(rate, 1), static_cast<int64_t>(second_ns));
	return rate;
}

int64_t
cost_ns(const Rate &rate, int64_t n) noexcept
{
	return bounded(std::ceil(static_cast<double>(n) * rate.each_ns));
}

int64_t
affordable(const Rate &rate, int64_t spent_until, int64_t now, int64_t wanted) noexcept
{
	int64_t ns = now - accrued_from(rate, spent_until, now);
	double about = ns > 0 ? static_cast<double>(ns) / rate.each_ns : 0;
	int64_t n = about < static_cast<double>(wanted) ? static_cast<int64_t>(about) + 1 : wanted;

	// The division may be off by one.
	while (n > 0 && (n > wanted || cost_ns(rate, n) > ns))
		n--;
	return n;
}

int64_t
spend(const Rate &rate, int64_t spent_until, int64_t now, int64_t n) noexcept
{
	return n > 0 ? accrued_from(rate, spent_until, now) + cost_ns(rate, n) : spent_until;
}

Spent
both(const Spent &one, const Spent &other) noexcept
{
	if (one.ns == 0 || other.ns == 0)
		return one.ns == 0 ? other : one;

	uint64_t room = one.room_until + static_cast<uint64_t>(other.ns);
	uint64_t room_of_other = other.room_until + static_cast<uint64_t>(one.ns);

	return {one.ns + other.ns, static_cast<int64_t>(room_of_other - room) < 0 ? room_of_other : room,
			std::max(one.spend, other.spend)};
}

void
spend_from(Bucket *bucket, Spent *spent, const Rate &rate, int64_t now, int64_t n) noexcept
{
	if (n == 0)
		return;
	bucket->spent_until = spend(rate, bucket->spent_until, now, n);
	bucket->last = std::max(bucket->last, now);
	bucket->spends++;
	*spent =
		both(*spent, {cost_ns(rate, n), static_cast<uint64_t>(bucket->spent_until + rate.burst_ns) + bucket->is_back,
					  bucket->spends});
}

namespace {

int64_t
give_back(Bucket *bucket, Spent *spent, int64_t ns) noexcept
{
	int64_t room = static_cast<int64_t>(spent->room_until - bucket->is_back - static_cast<uint64_t>(bucket->last));
	int64_t back = std::clamp<int64_t>(room, 0, ns);

	bucket->spent_until -= back;
	bucket->is_back += static_cast<uint64_t>(back);
	spent->ns -= ns;
	return back;
}

} // namespace

int64_t
give_unused_back(Bucket *bucket, Spent *spent, const Rate &rate, int64_t n) noexcept
{
	int64_t ns = std::min(spent->ns, bounded(std::floor(static_cast<double>(n) * rate.each_ns)));

	if (bucket->spends != spent->spend)
		return give_back(bucket, spent, ns);
	// As if it had never been spent.
	bucket->spent_until -= ns;
	spent->room_until -= static_cast<uint64_t>(ns);
	spent->ns -= ns;
	return ns;
}

int64_t
give_all_back(Bucket *bucket, Spent *spent) noexcept
{
	return give_back(bucket, spent, spent->ns);
}

int64_t
more_at(const Rate &rate, int64_t spent_until, int64_t now, int64_t affordable_now) noexcept
{
	int64_t from = accrued_from(rate, spent_until, now);
	int64_t next = cost_ns(rate, affordable_now + 1);

	if (next > rate.burst_ns)
		return no_more;
	return std::max(from + next, std::min(now + gather_ns, from + rate.burst_ns / 2));
}

} // namespace outbox::core
