// Random tests can be repeated: the seed is printed once, and the environment
// variable SEED overrides it.
#pragma once

#include <cstdint>
#include <random>

namespace relay::test {

uint64_t seed();

// A generator of its own for each test, so that one test run alone draws the same.
inline std::mt19937_64
generator()
{
	return std::mt19937_64(seed());
}

} // namespace relay::test
