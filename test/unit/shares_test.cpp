// Shares of a batch: exact ones, rounded ones, their mean, and the greatest numbers.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "seed.h"
#include "shares.h"

namespace {

using Numbers = std::vector<int32_t>;

Numbers
shares(int32_t places, const Numbers &weights, uint64_t random)
{
	Numbers result(weights.size());

	outbox::core::share_out(places, weights.data(), result.data(), static_cast<int>(weights.size()), random);
	return result;
}

TEST(Shares, Exact)
{
	for (uint64_t random : {0ull, 1ull, 2ull, 3ull, 12345ull, ~0ull})
	{
		EXPECT_EQ(shares(10, {1, 1}, random), (Numbers{5, 5}));
		EXPECT_EQ(shares(10, {4, 1}, random), (Numbers{8, 2}));
		EXPECT_EQ(shares(12, {3, 2, 1}, random), (Numbers{6, 4, 2}));
		EXPECT_EQ(shares(7, {3}, random), (Numbers{7}));
		EXPECT_EQ(shares(0, {3, 1}, random), (Numbers{0, 0}));
	}
}

TEST(Shares, NoneWithoutWeight)
{
	EXPECT_EQ(shares(10, {0, 2, 0}, 1), (Numbers{0, 10, 0}));
	EXPECT_EQ(shares(10, {0, 0}, 1), (Numbers{0, 0}));
	EXPECT_EQ(shares(10, {-5, 1}, 1), (Numbers{0, 10}));
	EXPECT_EQ(shares(10, {}, 1), (Numbers{}));
}

// One place goes to each as often as its weight says.
TEST(Shares, OnePlace)
{
	Numbers sum(3);

	for (uint64_t random = 0; random < 10; random++)
	{
		Numbers one = shares(1, {7, 1, 2}, random);

		EXPECT_EQ(std::accumulate(one.begin(), one.end(), 0), 1);
		for (size_t i = 0; i < sum.size(); i++)
			sum[i] += one[i];
	}
	EXPECT_EQ(sum, (Numbers{7, 1, 2}));
}

// All places are given, each share is rounded down or up, and over all shifts of the comb the mean is exact.
TEST(Shares, Random)
{
	std::mt19937_64 random = outbox::test::generator();

	for (int round = 0; round < 2000; round++)
	{
		Numbers weights(1 + random() % 8);
		int32_t places = static_cast<int32_t>(random() % 50);
		uint64_t total = 0;

		for (int32_t &weight : weights)
			total += static_cast<uint64_t>(weight = static_cast<int32_t>(1 + random() % 9));

		std::vector<uint64_t> sum(weights.size());
		for (uint64_t shift = 0; shift < total; shift++)
		{
			Numbers some = shares(places, weights, shift);

			EXPECT_EQ(std::accumulate(some.begin(), some.end(), 0), places);
			for (size_t i = 0; i < weights.size(); i++)
			{
				uint64_t exact = static_cast<uint64_t>(places) * static_cast<uint64_t>(weights[i]);

				EXPECT_GE(static_cast<uint64_t>(some[i]), exact / total);
				EXPECT_LE(static_cast<uint64_t>(some[i]), (exact + total - 1) / total);
				sum[i] += static_cast<uint64_t>(some[i]);
			}
		}
		for (size_t i = 0; i < weights.size(); i++)
			EXPECT_EQ(sum[i], static_cast<uint64_t>(places) * static_cast<uint64_t>(weights[i]));
	}
}

TEST(Shares, Greatest)
{
	constexpr int32_t most = std::numeric_limits<int32_t>::max();
	Numbers weights(1000, most);
	Numbers some = shares(most, weights, ~0ull);

	EXPECT_EQ(std::accumulate(some.begin(), some.end(), int64_t{0}), most);
	EXPECT_EQ(shares(most, {most}, ~0ull), (Numbers{most}));
	some = shares(most, {most, 1}, 0);
	EXPECT_EQ(some[0], most - 1);
	EXPECT_EQ(some[1], 1);
}

} // namespace
