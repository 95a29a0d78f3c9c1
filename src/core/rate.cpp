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

int64_t
give_back(double each_ns, int64_t spent_until, int64_t n) noexcept
{
	return spent_until - bounded(std::floor(static_cast<double>(n) * each_ns));
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
