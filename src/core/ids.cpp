// Guarantees of ids.h, and how they are kept:
// - (prefix, tail) grows unless it has reached the limit, and the id is that pair in byte order;
// - a fresh tail starts in the lower half of its 62 bits, so that counting on
//   does not run over into the next tick, which might lie beyond the limit;
// - ids end in the year 10889: then the last one is returned again, and the unique
//   index refuses it.
#include "ids.h"

#include <algorithm>

namespace outbox::core {

namespace {

constexpr uint64_t max_ms = (uint64_t{1} << 48) - 1;
constexpr uint64_t max_prefix = (uint64_t{1} << 60) - 1;
constexpr uint64_t max_tail = (uint64_t{1} << 62) - 1;

uint64_t
clamp_ms(int64_t ms) noexcept
{
	return ms < 0 ? 0 : std::min(static_cast<uint64_t>(ms), max_ms);
}

uint64_t
prefix_at(int64_t unix_us) noexcept
{
	const uint64_t us = unix_us < 0 ? 0 : static_cast<uint64_t>(unix_us);

	if (us / 1000 > max_ms)
		return max_prefix;
	return (us / 1000) << 12 | (us % 1000) * 4096 / 1000;
}

uint64_t
keep_below(uint64_t prefix, int64_t limit_ms) noexcept
{
	if (limit_ms <= 0)
		return 0;
	if (static_cast<uint64_t>(limit_ms) > max_ms)
		return prefix;
	return std::min(prefix, (static_cast<uint64_t>(limit_ms) << 12) - 1);
}

// Never 0: prefix 0 with tail 0 means "none yet".
uint64_t
fresh_tail(uint64_t entropy) noexcept
{
	return 1 + (entropy >> 3);
}

// The step is random, so that an id does not reveal its neighbour, and has only 24
// bits, so that no backend lives long enough to use up the tail.
void
count_on(IdClock &clock, uint64_t entropy) noexcept
{
	const uint64_t step = 1 + (entropy >> 40);

	if (step <= max_tail - clock.tail)
	{
		clock.tail += step;
	}
	else if (clock.prefix < max_prefix)
	{
		clock.prefix++;
		clock.tail = fresh_tail(entropy);
	}
	else
	{
		clock.tail = max_tail;
	}
}

void
store_big_endian(unsigned char *out, uint64_t value) noexcept
{
	for (int i = 7; i >= 0; i--, value >>= 8)
		out[i] = static_cast<unsigned char>(value);
}

Uuid
assemble(uint64_t prefix, uint64_t tail) noexcept
{
	constexpr uint64_t version = 0x7000;
	constexpr uint64_t variant = uint64_t{1} << 63;
	Uuid id;

	store_big_endian(id.bytes, (prefix >> 12) << 16 | version | (prefix & 0xfff));
	store_big_endian(id.bytes + 8, variant | tail);
	return id;
}

} // namespace

Uuid
next_id(IdClock &clock, int64_t unix_us, int64_t limit_ms, uint64_t entropy) noexcept
{
	const uint64_t prefix = keep_below(prefix_at(unix_us), limit_ms);
	const bool none_yet = clock.prefix == 0 && clock.tail == 0;
	const bool beyond_limit = clock.prefix > keep_below(max_prefix, limit_ms);

	if (prefix > clock.prefix || none_yet || beyond_limit)
		clock = {prefix, fresh_tail(entropy)};
	else
		count_on(clock, entropy);
	return assemble(clock.prefix, clock.tail);
}

Uuid
first_id_at(int64_t unix_ms) noexcept
{
	return assemble(clamp_ms(unix_ms) << 12, 0);
}

int64_t
id_time_ms(const Uuid &id) noexcept
{
	uint64_t ms = 0;

	for (int i = 0; i < 6; i++)
		ms = ms << 8 | id.bytes[i];
	return static_cast<int64_t>(ms);
}

} // namespace outbox::core
