// The order of messages whose priority rises while they wait.
//
// Guarantees: a message of priority p that has waited w has the effective priority p + floor(w / aging);
// of two with the same, the one of the higher priority comes first. Times are microseconds; the least number is
// "since ever". Nothing overflows, whatever the times: waits of more than 292,000 years count as equal.
#pragma once

#include <cstdint>

namespace outbox::core {

constexpr int64_t since_ever = INT64_MIN;

// Where a message stands among those of other priorities.
struct Rank {
	int64_t effective;
	int priority;
};

// since: not after now. aging: above 0.
Rank rank_of(int priority, int64_t since, int64_t now, int64_t aging) noexcept;
bool comes_before(const Rank &a, const Rank &b) noexcept;

// The messages of a priority that come before one of that rank, of another priority, are those that have waited since
// before the time returned: none of them, if it is since_ever.
int64_t end_of_those_before(const Rank &rank, int priority, int64_t now, int64_t aging) noexcept;

} // namespace outbox::core
