// Message ids: UUIDv7 (RFC 9562), strictly increasing within one backend.
//
// Guarantee: each id from next_id() is greater than the one before it from the same IdClock, even if
// the wall clock steps back, unless it would reach the limit. If the clock stands still or steps
// back, the time part stays and the random tail counts on (RFC 9562 section 6.2, method 2).
#pragma once

#include <cstdint>

namespace outbox::core {

struct Uuid {
	unsigned char bytes[16];
};

// What a backend remembers between ids. All zero means "none yet".
struct IdClock {
	uint64_t prefix; // 48 bits of milliseconds, then 12 bits of their fraction
	uint64_t tail;   // the 62 bits below the variant
};

// unix_us: wall clock, microseconds since 1970. limit_ms: ids must stay below
// this millisecond (the end of the partitions that exist); INT64_MAX means no
// limit. The limit wins over monotonicity. entropy: 8 fresh random bytes.
Uuid next_id(IdClock &clock, int64_t unix_us, int64_t limit_ms, uint64_t entropy) noexcept;

// The smallest id of a millisecond: a partition bound.
Uuid first_id_at(int64_t unix_ms) noexcept;

// The millisecond an id carries.
int64_t id_time_ms(const Uuid &id) noexcept;

} // namespace outbox::core
