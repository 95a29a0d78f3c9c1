// See shares.h. The proportions are laid end to end on a line, whose unit is a place. A comb with teeth one unit apart,
// shifted at random by less than a unit, counts the places of each.
//
// In units of 1 / total: places < 2^31 and weights < 2^31, so a product is less than 2^62, and the carry, which is less
// than the sum of the weights, than 2^62 for less than 2^31 weights. So no sum overflows.

#include "shares.h"

#include <algorithm>

namespace outbox::core {

void
share_out(int32_t places, const int32_t *weights, int32_t *shares, int count, uint64_t random) noexcept
{
	uint64_t total = 0;
	uint64_t carry;

	for (int i = 0; i < count; i++)
		total += static_cast<uint64_t>(std::max(weights[i], 0));
	carry = total > 0 ? random % total : 0;
	for (int i = 0; i < count; i++)
	{
		uint64_t line =
			carry + static_cast<uint64_t>(std::max(places, 0)) * static_cast<uint64_t>(std::max(weights[i], 0));

		shares[i] = total > 0 ? static_cast<int32_t>(line / total) : 0;
		carry = total > 0 ? line % total : 0;
	}
}

} // namespace outbox::core
