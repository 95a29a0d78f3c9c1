// How many messages a rate allows now: a token bucket in one number.
//
// Guarantee: in any time t no more than burst + rate * t messages are spent. spent_until is the time up to which all
// that the rate allows is spent: it begins at the present time, which is an empty bucket, and never passes it. What
// accrues before now - burst is lost. A change of the rate or of the burst therefore blocks no claim longer than one
// message takes. Times are those of a clock that never steps, in nanoseconds.
#pragma once

#include <cstdint>

namespace outbox::core {

struct Rate {
	double each_ns; // a message
	int64_t burst_ns;
};

// burst: messages; 0 = those of one second, at least 1.
Rate rate_of(double per_second, int burst) noexcept;

// What n messages take, rounded up.
int64_t cost_ns(const Rate &rate, int64_t n) noexcept;
// Up to so many messages.
int64_t affordable(const Rate &rate, int64_t spent_until, int64_t now, int64_t wanted) noexcept;
// The new spent_until, of n messages that are affordable.
int64_t spend(const Rate &rate, int64_t spent_until, int64_t now, int64_t n) noexcept;
// The new spent_until when n messages are given back; rounded down.
int64_t give_back(double each_ns, int64_t spent_until, int64_t n) noexcept;
// When there is more than the messages that are affordable now: at the next message, or a little later if that loses
// nothing of the burst. no_more: those are the burst.
constexpr int64_t no_more = INT64_MAX;
int64_t more_at(const Rate &rate, int64_t spent_until, int64_t now, int64_t affordable_now) noexcept;

} // namespace outbox::core
