// Guarantees of backoff.h, and what it leaves open:
// - attempt_no below 1 behaves as 1; a base of 0 or less gives 0; a cap below
//   the base gives the cap, be it negative;
// - a delay above 0 stays above 0 under any jitter;
// - jitter outside [0, 1] behaves as the nearer end, NaN as 0;
// - the jitter of an (id, attempt_no) is the same on every machine.
#include "backoff.h"

#include <algorithm>

namespace outbox::core {

namespace {

// The output function of splitmix64.
uint64_t
mix(uint64_t x) noexcept
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

uint64_t
load_big_endian(const unsigned char *bytes) noexcept
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | bytes[i];
	return value;
}

// In [0, 1): 53 bits are what a double holds exactly, so 1 is never reached.
double
unit_fraction(const Uuid &id, int attempt_no) noexcept
{
	uint64_t hash = mix(load_big_endian(id.bytes));

	hash = mix(hash ^ load_big_endian(id.bytes + 8));
	hash = mix(hash ^ static_cast<uint64_t>(attempt_no));
	return static_cast<double>(hash >> 11) * 0x1p-53;
}

} // namespace

int64_t
backoff_us(int64_t base_us, int64_t cap_us, int attempt_no) noexcept
{
	const int doublings = std::max(attempt_no, 1) - 1;

	if (base_us <= 0)
		return 0;
	// The cap is shifted down, since the base shifted up might overflow.
	if (doublings >= 63 || base_us > cap_us >> doublings)
		return cap_us;
	return base_us << doublings;
}

int64_t
jittered_backoff_us(int64_t base_us, int64_t cap_us, int attempt_no, double jitter, const Uuid &id) noexcept
{
	const int64_t delay = backoff_us(base_us, cap_us, attempt_no);

	// Written so that NaN ends here: converted to an integer it is undefined.
	if (delay <= 0 || !(jitter > 0))
		return delay;

	const double share = std::min(jitter, 1.0) * unit_fraction(id, std::max(attempt_no, 1));
	// share is at most 1 - 2^-53, which takes the product at least one step below
	// the double next to delay: it fits, and something of the delay remains.
	return delay - static_cast<int64_t>(static_cast<double>(delay) * share);
}

} // namespace outbox::core
