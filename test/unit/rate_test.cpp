// Rates: never more than burst + rate * time, and all of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "rate.h"
#include "seed.h"

namespace {

using namespace outbox::core;

constexpr int64_t second = INT64_C(1'000'000'000);
constexpr int64_t start = 5 * second;

TEST(Rate, AnEmptyBucketFillsToItsBurst)
{
	Rate rate = rate_of(3, 7);

	EXPECT_EQ(affordable(rate, start, start, 100), 0);
	EXPECT_EQ(affordable(rate, start, start + second / 3 - 1, 100), 0);
	EXPECT_EQ(affordable(rate, start, start + second / 3 + 1, 100), 1);
	EXPECT_EQ(affordable(rate, start, start + second - 1, 100), 2);
	EXPECT_EQ(affordable(rate, start, start + second, 100), 3);
	EXPECT_EQ(affordable(rate, start, start + 1000 * second, 100), 7);
	EXPECT_EQ(affordable(rate, start, start + 1000 * second, 2), 2);
	EXPECT_EQ(affordable(rate, start, start - second, 100), 0); // read before another was
}

TEST(Rate, TheBurstIsThatOfASecondUnlessGiven)
{
	EXPECT_EQ(affordable(rate_of(250, 0), 0, 100 * second, 1000), 250);
	EXPECT_EQ(affordable(rate_of(2.5, 0), 0, 100 * second, 1000), 2);
	EXPECT_EQ(affordable(rate_of(0.1, 0), 0, 100 * second, 1000), 1);
	EXPECT_EQ(affordable(rate_of(0.1, 3), 0, 100 * second, 1000), 3);
}

TEST(Rate, ExtremeValues)
{
	for (double per_second : {5e-324, 1e-300, 1e-12, 1e-3, 1.0, 1e9, 1e15, 1.7e308})
		for (int burst : {0, 1, 1000, 2147483647})
		{
			Rate rate = rate_of(per_second, burst);
			int64_t now = INT64_C(1) << 60;
			int64_t n = affordable(rate, 0, now, 2147483647);

			EXPECT_GE(n, 0);
			EXPECT_LE(n, 2147483647);
			EXPECT_LE(spend(rate, 0, now, n), now) << per_second << " " << burst;
			EXPECT_GT(more_at(rate, now, now, 0), now);
			EXPECT_LE(give_back(rate.each_ns, now, 1), now);
		}
}

TEST(Rate, GivenBackIsThereAgain)
{
	Rate rate = rate_of(10, 5);
	int64_t spent = spend(rate, 0, start, 5);

	EXPECT_EQ(affordable(rate, spent, start, 9), 0);
	EXPECT_EQ(affordable(rate, give_back(rate.each_ns, spent, 2), start, 9), 2);
	EXPECT_EQ(affordable(rate, give_back(rate.each_ns, spent, 100), start, 9), 5);
}

TEST(Rate, ALookFindsSomethingAndLosesNothing)
{
	for (double per_second : {0.01, 3.0, 1000.0, 1e6})
		for (int burst : {1, 2, 100, 5000})
		{
			Rate rate = rate_of(per_second, burst);
			int64_t look = more_at(rate, start, start, 0);

			EXPECT_GE(affordable(rate, start, look, 1000000), 1);
			EXPECT_LE(look - start, rate.burst_ns);
			EXPECT_EQ(
				more_at(rate, start - rate.burst_ns, start, affordable(rate, start - rate.burst_ns, start, 1000000)),
				no_more);
		}
}

// In every time between two claims, also with what is given back.
TEST(Rate, NeverMoreThanItsBurstAndItsTime)
{
	std::mt19937_64 random = outbox::test::generator();

	for (int run = 0; run < 300; run++)
	{
		double per_second = std::pow(10.0, static_cast<double>(random() % 900) / 100 - 2);
		int burst = static_cast<int>(random() % 20);
		double most = burst > 0 ? burst : std::max(1.0, per_second);
		Rate rate = rate_of(per_second, burst);
		int64_t now = start;
		int64_t spent = start;
		std::vector<std::pair<int64_t, int64_t>> net;

		for (int i = 0; i < 100; i++)
		{
			int64_t n;

			now += static_cast<int64_t>(static_cast<double>(random() % 300) / 100 * rate.each_ns);
			n = affordable(rate, spent, now, static_cast<int64_t>(random() % 8));
			spent = spend(rate, spent, now, n);
			ASSERT_LE(spent, now);
			if (n > 0 && random() % 4 == 0)
			{
				spent = give_back(rate.each_ns, spent, 1);
				n--;
			}
			net.emplace_back(now, n);
			int64_t sum = 0;
			for (size_t from = net.size(); from-- > 0;)
			{
				sum += net[from].second;
				ASSERT_LE(static_cast<double>(sum),
						  most + static_cast<double>(now - net[from].first) / rate.each_ns + 1e-6)
					<< per_second << " " << burst;
			}
		}
	}
}

// Taken as soon as it is there, nothing of the rate is lost.
TEST(Rate, AllOfItCanBeUsed)
{
	Rate rate = rate_of(1000, 10);
	int64_t now = start;
	int64_t spent = start;
	int64_t sum = 0;

	while (now < start + 10 * second)
	{
		int64_t n;

		now = more_at(rate, spent, now, 0);
		n = affordable(rate, spent, now, 100);
		spent = spend(rate, spent, now, n);
		sum += n;
	}
	EXPECT_GE(sum, 9990);
	EXPECT_LE(sum, 10020);
}

} // namespace
