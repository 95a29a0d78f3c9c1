// How many messages a rate allows now: a token bucket in one number.
//
// Guarantee: in any time t no more than burst + rate * t messages are spent. spent_until is the time up to which all
// that the rate allows is spent: it begins at the present time, which is an empty bucket, and never passes it. What
// accrues before now - burst is lost. A change of the rate or of the burst therefore blocks no claim longer than one
// message takes. Times are those of a clock that never steps, in nanoseconds.
//
// What is given back late may not be there any more: had it never been spent, the bucket might have been full
// meanwhile, and lost what accrued. So each transaction keeps until when there is room for what it spent: when the
// bucket would have been full. As long as others spent before that time, all is given back, and later so much less.
// What is given back to the bucket fills it earlier, for all who spent before.
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

struct Bucket {
	int64_t spent_until;
	int64_t last;     // when something was spent
	uint64_t spends;  // how often
	uint64_t is_back; // all that was given back late; it may wrap
};

// By one transaction, also by several claims.
struct Spent {
	int64_t ns;
	uint64_t room_until; // plus the bucket's is_back
	uint64_t spend;      // the number of the last one
};

void spend_from(Bucket *bucket, Spent *spent, const Rate &rate, int64_t now, int64_t n) noexcept;
// What the last claim did not use. Returns how much it was.
int64_t give_unused_back(Bucket *bucket, Spent *spent, const Rate &rate, int64_t n) noexcept;
// All of it.
int64_t give_all_back(Bucket *bucket, Spent *spent) noexcept;
// What both spent: two levels of a transaction.
Spent both(const Spent &one, const Spent &other) noexcept;
// When there is more than the messages that are affordable now: at the next message, or a little later if that loses
// nothing of the burst. no_more: those are the burst.
constexpr int64_t no_more = INT64_MAX;
int64_t more_at(const Rate &rate, int64_t spent_until, int64_t now, int64_t affordable_now) noexcept;

} // namespace outbox::core
