// Priorities that rise with the wait: ranks, ranges, both against each other, and times at the ends of the world.
#include <gtest/gtest.h>

#include <vector>

#include "aging.h"
#include "seed.h"

namespace {

using namespace outbox::core;

constexpr int64_t now = 800'000'000'000'000'000;
constexpr int64_t minute = 60'000'000;

TEST(Aging, Rises)
{
	EXPECT_EQ(rank_of(3, now, now, minute).effective, 3);
	EXPECT_EQ(rank_of(3, now - minute + 1, now, minute).effective, 3);
	EXPECT_EQ(rank_of(3, now - minute, now, minute).effective, 4);
	EXPECT_EQ(rank_of(0, now - 100 * minute, now, minute).effective, 100);
	EXPECT_EQ(rank_of(3, now + minute, now, minute).effective, 3);
}

TEST(Aging, HigherFirstAmongEquals)
{
	Rank low = rank_of(1, now - 2 * minute, now, minute);
	Rank high = rank_of(2, now - minute, now, minute);

	EXPECT_TRUE(comes_before(high, low));
	EXPECT_FALSE(comes_before(low, high));
	EXPECT_TRUE(comes_before(rank_of(1, now - 3 * minute, now, minute), high));
}

TEST(Aging, Ranges)
{
	Rank rank = rank_of(5, now - 2 * minute, now, minute);

	// Higher ones need to have risen twice, lower ones by the difference and once more.
	EXPECT_EQ(end_of_those_before(rank, 5, now, minute), now - 2 * minute + 1);
	EXPECT_EQ(end_of_those_before(rank, 7, now, minute), now + 1);
	EXPECT_EQ(end_of_those_before(rank, 15, now, minute), now + 1);
	EXPECT_EQ(end_of_those_before(rank, 6, now, minute), now - minute + 1);
	EXPECT_EQ(end_of_those_before(rank, 4, now, minute), now - 4 * minute + 1);
}

TEST(Aging, Extremes)
{
	// A priority rises more often than numbers count, or never.
	EXPECT_GT(rank_of(15, since_ever, now, 1).effective, rank_of(15, since_ever + 1, now, 2).effective);
	EXPECT_EQ(rank_of(15, since_ever, now, INT64_MAX).effective, 15);
	EXPECT_EQ(rank_of(15, INT64_MAX, since_ever, 1).effective, 15);
	for (int64_t aging : {int64_t{1}, minute, INT64_MAX / 2, INT64_MAX})
		for (int64_t at : {since_ever, since_ever + 1, int64_t{-1}, int64_t{0}, now, INT64_MAX})
			for (int64_t since : {since_ever, since_ever + 1, at, at > since_ever ? at - 1 : at})
				for (int priority : {0, 15})
				{
					Rank rank = rank_of(priority, since, at, aging);
					int other = 15 - priority;
					int64_t end = end_of_those_before(rank, other, at, aging);

					// The last one in the range, and the first behind it.
					EXPECT_TRUE(end == since_ever || comes_before(rank_of(other, end - 1, at, aging), rank));
					EXPECT_TRUE(end > at || end == INT64_MAX || !comes_before(rank_of(other, end, at, aging), rank));
				}
}

// The range is what the comparison of each says.
TEST(Aging, Random)
{
	std::mt19937_64 random = outbox::test::generator();

	for (int round = 0; round < 100'000; round++)
	{
		int64_t aging = 1 + static_cast<int64_t>(random() % 9);
		int one = static_cast<int>(random() % 16);
		int other = static_cast<int>(random() % 16);
		int64_t since = now - static_cast<int64_t>(random() % 200);
		Rank rank = rank_of(one, since, now, aging);
		int64_t end = end_of_those_before(rank, other, now, aging);

		if (one == other)
			continue;
		for (int64_t at = now - 250; at <= now; at++)
			ASSERT_EQ(comes_before(rank_of(other, at, now, aging), rank), at < end)
				<< one << ' ' << other << ' ' << aging << ' ' << now - since << ' ' << now - at;
	}
}

} // namespace
