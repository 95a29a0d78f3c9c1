// Rates: never more than burst + rate * time, and all of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
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
		}
}

int64_t
take(Bucket *bucket, Spent *spent, const Rate &rate, int64_t now, int64_t wanted)
{
	int64_t n = affordable(rate, bucket->spent_until, now, wanted);

	spend_from(bucket, spent, rate, now, n);
	return n;
}

TEST(Rate, GivenBackIsThereAgain)
{
	Rate rate = rate_of(10, 5);
	Bucket bucket = {};
	Spent spent = {};

	EXPECT_EQ(take(&bucket, &spent, rate, start, 9), 5);
	EXPECT_GT(give_unused_back(&bucket, &spent, rate, 2), 0);
	EXPECT_EQ(affordable(rate, bucket.spent_until, start, 9), 2);
	EXPECT_EQ(take(&bucket, &spent, rate, start, 9), 2);
	EXPECT_GT(give_all_back(&bucket, &spent), 0);
	EXPECT_EQ(spent.ns, 0);
	EXPECT_EQ(affordable(rate, bucket.spent_until, start, 9), 5);
}

TEST(Rate, GivenBackLateItIsNotThereTwice)
{
	Rate rate = rate_of(10, 5);
	Bucket bucket = {};
	Spent one = {};
	Spent other = {};
	Spent later = {};

	EXPECT_EQ(take(&bucket, &one, rate, start, 3), 3);
	EXPECT_EQ(take(&bucket, &other, rate, start, 9), 2);
	// Had neither been spent, the bucket would have been full all the time.
	EXPECT_EQ(take(&bucket, &later, rate, start + 4 * second / 10, 9), 4);
	give_all_back(&bucket, &one);
	give_all_back(&bucket, &other);
	EXPECT_EQ(affordable(rate, bucket.spent_until, start + 4 * second / 10, 9), 1);
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

struct Claim {
	int64_t at;
	int64_t count;
};

struct Transaction {
	std::vector<Claim> claims;
	Spent spent;
};

void
pass_time(int64_t *now, const Rate &rate, uint64_t slowness, std::mt19937_64 &random)
{
	*now += static_cast<int64_t>(static_cast<double>(random() % slowness) / 100 * rate.each_ns);
}

struct History {
	Rate rate;
	uint64_t slowness;
	int64_t now;
	Bucket bucket;
	std::vector<Transaction> open;
	std::vector<Claim> kept;
};

void
claim_in(Transaction *transaction, History *history, std::mt19937_64 &random)
{
	bool is_level = random() % 2 == 0;
	Spent level = {};
	Spent *spent = is_level ? &level : &transaction->spent;
	int64_t at = history->now;
	int64_t n = take(&history->bucket, spent, history->rate, at, static_cast<int64_t>(random() % 8));

	ASSERT_LE(history->bucket.spent_until, at);
	if (n > 0 && random() % 2 == 0)
	{
		// Others may claim before it is done.
		while (random() % 3 == 0)
		{
			Spent other = {};

			pass_time(&history->now, history->rate, history->slowness, random);
			history->kept.push_back({history->now, take(&history->bucket, &other, history->rate, history->now, 3)});
		}
		give_unused_back(&history->bucket, spent, history->rate, 1);
		n--;
	}
	transaction->claims.push_back({at, n});
	if (is_level)
		transaction->spent = both(transaction->spent, level);
}

void
expect_no_more(const std::vector<Claim> &claims, const Rate &rate, double most)
{
	double rounding = 1 / rate.each_ns; // the burst is rounded up

	for (size_t from = 0; from < claims.size(); from++)
	{
		int64_t sum = 0;

		for (size_t to = from; to < claims.size(); to++)
		{
			sum += claims[to].count;
			ASSERT_LE(static_cast<double>(sum),
					  most + static_cast<double>(claims[to].at - claims[from].at) / rate.each_ns + rounding + 1e-6)
				<< rate.each_ns << " " << most;
		}
	}
}

void
step(History *history, std::mt19937_64 &random)
{
	size_t one = random() % (history->open.size() + 1);
	uint64_t what = random() % 5;

	pass_time(&history->now, history->rate, history->slowness, random);
	if (one == history->open.size())
		history->open.emplace_back();

	Transaction *transaction = &history->open[one];

	if (what > 1)
	{
		claim_in(transaction, history, random);
		return;
	}
	if (what == 0)
		give_all_back(&history->bucket, &transaction->spent);
	else
		history->kept.insert(history->kept.end(), transaction->claims.begin(), transaction->claims.end());
	history->open.erase(history->open.begin() + static_cast<std::ptrdiff_t>(one));
}

// In every time between two claims, of what was not given back: unused, or by a rollback at any time later.
TEST(Rate, NeverMoreThanItsBurstAndItsTime)
{
	std::mt19937_64 random = outbox::test::generator();

	for (int run = 0; run < 1000; run++)
	{
		double per_second = std::pow(10.0, static_cast<double>(random() % 900) / 100 - 2);
		int burst = static_cast<int>(random() % 20);
		History history = {rate_of(per_second, burst),
						   1 + random() % 600,
						   start,
						   {start, start, 0, random() % 2 == 0 ? 0 : UINT64_MAX - 1000},
						   {},
						   {}};

		for (int i = 0; i < 200; i++)
			step(&history, random);
		for (const Transaction &transaction : history.open)
			history.kept.insert(history.kept.end(), transaction.claims.begin(), transaction.claims.end());
		std::sort(history.kept.begin(), history.kept.end(), [](const Claim &a, const Claim &b) { return a.at < b.at; });
		expect_no_more(history.kept, history.rate, burst > 0 ? burst : std::max(1.0, per_second));
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
