// Shares of a batch in proportion to weights.
//
// Guarantees: the shares are not negative and add up to all places. Each is its exact proportion, rounded down or up,
// and over all values of `random` its mean is the exact proportion: a single place goes to one of them by chance, as
// often as its weight says. A weight of 0 or less gets nothing, and without any above 0 no place is given.
#pragma once

#include <cstdint>

namespace outbox::core {

// random: 64 bits.
void share_out(int32_t places, const int32_t *weights, int32_t *shares, int count, uint64_t random) noexcept;

} // namespace outbox::core
