// Ids: always rising, always UUIDv7, and inside the bounds of their partition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "ids.h"
#include "seed.h"

namespace {

using namespace outbox::core;

constexpr int64_t no_limit = INT64_MAX;
constexpr int64_t now_ms = 1'700'000'000'123;
constexpr int64_t now_us = now_ms * 1000 + 456;
constexpr int64_t last_ms = (int64_t{1} << 48) - 1;
constexpr uint64_t last_prefix = (uint64_t{1} << 60) - 1;
constexpr uint64_t last_tail = (uint64_t{1} << 62) - 1;

static_assert(noexcept(next_id(std::declval<IdClock &>(), 0, 0, 0)));
static_assert(sizeof(Uuid) == 16);

int
compare(const Uuid &a, const Uuid &b)
{
	return memcmp(a.bytes, b.bytes, sizeof a.bytes);
}

bool
is_version_7(const Uuid &id)
{
	return id.bytes[6] >> 4 == 7 && id.bytes[8] >> 6 == 2;
}

std::string
hex(const Uuid &id)
{
	std::string text;
	char pair[3];

	for (unsigned char byte : id.bytes)
	{
		snprintf(pair, sizeof pair, "%02x", byte);
		text += pair;
	}
	return text;
}

// Counts offences rather than asserting on millions of ids one by one.
struct Watch {
	Uuid previous{};
	long out_of_order = 0;
	long malformed = 0;
	long at_or_over_limit = 0;

	void see(const Uuid &id, int64_t limit_ms = no_limit)
	{
		out_of_order += compare(previous, id) >= 0;
		malformed += !is_version_7(id);
		at_or_over_limit += id_time_ms(id) >= limit_ms;
		previous = id;
	}

	void expect_clean() const
	{
		EXPECT_EQ(out_of_order, 0);
		EXPECT_EQ(malformed, 0);
		EXPECT_EQ(at_or_over_limit, 0);
	}
};

TEST(Ids, RiseWhileTheClockStands)
{
	auto random = outbox::test::generator();
	IdClock clock{};
	Watch watch;

	for (int i = 0; i < 3'000'000; i++)
		watch.see(next_id(clock, now_us, no_limit, random()));
	watch.expect_clean();
	EXPECT_EQ(id_time_ms(watch.previous), now_ms);
}

TEST(Ids, RiseWithoutAnyEntropy)
{
	for (uint64_t entropy : {uint64_t{0}, UINT64_MAX})
	{
		IdClock clock{};
		Watch watch;

		for (int i = 0; i < 1'000'000; i++)
			watch.see(next_id(clock, now_us, no_limit, entropy));
		watch.expect_clean();
		EXPECT_EQ(id_time_ms(watch.previous), now_ms);
	}
}

TEST(Ids, RiseWhileTheClockSteps)
{
	auto random = outbox::test::generator();
	IdClock clock{};
	Watch watch;
	int64_t us = now_us;

	for (int i = 0; i < 2'000'000; i++)
	{
		us += static_cast<int64_t>(random() % 2001) - 1000;
		watch.see(next_id(clock, us, no_limit, random()));
	}
	watch.expect_clean();
}

TEST(Ids, KeepTheTimeWhenTheClockStepsBack)
{
	IdClock clock{};
	const Uuid before = next_id(clock, now_us, no_limit, 1);
	const Uuid after = next_id(clock, now_us - 3'600'000'000, no_limit, 2);

	EXPECT_LT(compare(before, after), 0);
	EXPECT_EQ(memcmp(before.bytes, after.bytes, 8), 0);
}

TEST(Ids, FollowTheClockWithinAMillisecond)
{
	IdClock clock{};
	Uuid previous = next_id(clock, now_ms * 1000, no_limit, UINT64_MAX);

	for (int us = 1; us < 1000; us++)
	{
		const Uuid id = next_id(clock, now_ms * 1000 + us, no_limit, 0);

		// The time part alone must order them, so that it also does between backends.
		ASSERT_LT(memcmp(previous.bytes, id.bytes, 8), 0) << us;
		ASSERT_EQ(id_time_ms(id), now_ms) << us;
		previous = id;
	}
}

TEST(Ids, FractionIsAShareOf4096)
{
	IdClock start{}, half{}, end{};

	EXPECT_EQ(hex(next_id(start, now_ms * 1000, no_limit, 0)).substr(12, 4), "7000");
	EXPECT_EQ(hex(next_id(half, now_ms * 1000 + 500, no_limit, 0)).substr(12, 4), "7800");
	EXPECT_EQ(hex(next_id(end, now_ms * 1000 + 999, no_limit, 0)).substr(12, 4), "7ffb");
}

TEST(Ids, ExampleOfTheRfc)
{
	IdClock clock{0x017f22e279b0cc3, 0x18c4dc0c0c07398f - 1};
	const Uuid id = next_id(clock, 0, no_limit, 0);

	EXPECT_EQ(hex(id), "017f22e279b07cc398c4dc0c0c07398f");
	EXPECT_EQ(id_time_ms(id), 1645557742000);
}

TEST(Ids, StayBelowTheLimit)
{
	auto random = outbox::test::generator();
	constexpr int64_t limit_ms = now_ms + 2;
	IdClock clock{};
	Watch watch;

	for (int i = 0; i < 1'000'000; i++)
		watch.see(next_id(clock, now_us + i, limit_ms, random()), limit_ms);
	watch.expect_clean();
	EXPECT_EQ(id_time_ms(watch.previous), limit_ms - 1);
	EXPECT_LT(compare(watch.previous, first_id_at(limit_ms)), 0);
}

TEST(Ids, LimitIsExclusiveAndTouchesNothingBelow)
{
	for (int64_t limit_ms : {now_ms - 1000, now_ms, now_ms + 1, now_ms + 2, no_limit})
	{
		IdClock clock{};
		const int64_t ms = id_time_ms(next_id(clock, now_us, limit_ms, 7));

		EXPECT_EQ(ms, std::min(now_ms, limit_ms - 1)) << limit_ms;
	}
}

TEST(Ids, LimitThatMovesOnIsFollowed)
{
	IdClock clock{};

	next_id(clock, now_us, now_ms - 10, 1);
	EXPECT_EQ(id_time_ms(next_id(clock, now_us, now_ms + 10, 1)), now_ms);
}

TEST(Ids, LimitWinsOverMonotonicity)
{
	IdClock stepped{};
	const Uuid before = next_id(stepped, now_us, no_limit, 1);
	const Uuid after = next_id(stepped, now_us, now_ms - 1000, 1);
	const Uuid next = next_id(stepped, now_us, now_ms - 1000, 1);

	EXPECT_LT(compare(after, before), 0);
	EXPECT_EQ(id_time_ms(after), now_ms - 1001);
	EXPECT_LT(compare(after, next), 0);
}

TEST(Ids, TailThatIsUsedUpCarries)
{
	for (uint64_t room = 0; room < 3; room++)
	{
		IdClock clock{uint64_t{now_ms} << 12 | 0xfff, last_tail - room};
		Watch watch;

		for (int i = 0; i < 1000; i++)
			watch.see(next_id(clock, 0, no_limit, UINT64_MAX));
		watch.expect_clean();
		EXPECT_EQ(id_time_ms(watch.previous), now_ms + 1);
		EXPECT_EQ(clock.prefix, uint64_t{now_ms + 1} << 12);
	}
}

TEST(Ids, FreshTailLeavesRoomToCount)
{
	for (uint64_t entropy : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX})
	{
		IdClock clock{};

		next_id(clock, now_us, no_limit, entropy);
		EXPECT_LE(clock.tail, uint64_t{1} << 61);
	}
}

TEST(Ids, TailIsAsRandomAsItsEntropy)
{
	auto random = outbox::test::generator();
	uint64_t ones = 0, zeros = 0;

	for (int i = 0; i < 1000; i++)
	{
		IdClock clock{};

		next_id(clock, now_us, no_limit, random());
		ones |= clock.tail;
		zeros |= ~clock.tail;
	}
	constexpr uint64_t random_bits = (uint64_t{1} << 61) - 1;
	EXPECT_EQ(ones & random_bits, random_bits);
	EXPECT_EQ(zeros & random_bits, random_bits);
}

TEST(Ids, BackendsDoNotMeet)
{
	auto random = outbox::test::generator();
	std::set<std::string> seen;

	for (int backend = 0; backend < 300; backend++)
	{
		IdClock clock{};

		for (int i = 0; i < 300; i++)
			seen.insert(hex(next_id(clock, now_us, no_limit, random())));
	}
	EXPECT_EQ(seen.size(), 300u * 300u);
}

TEST(Ids, StandingClockDoesNotMakeThemGuessable)
{
	auto random = outbox::test::generator();
	std::set<uint64_t> steps;
	IdClock clock{};

	next_id(clock, now_us, no_limit, random());
	for (int i = 0; i < 1000; i++)
	{
		const uint64_t before = clock.tail;

		next_id(clock, now_us, no_limit, random());
		steps.insert(clock.tail - before);
	}
	EXPECT_GT(steps.size(), 900u);
}

TEST(Ids, FromTheEpochOnAndBefore)
{
	for (int64_t us : {INT64_MIN, int64_t{-1}, int64_t{0}})
	{
		IdClock clock{};
		Watch watch;

		for (int i = 0; i < 1000; i++)
			watch.see(next_id(clock, us, no_limit, 0));
		watch.expect_clean();
		EXPECT_EQ(id_time_ms(watch.previous), 0);
	}
}

TEST(Ids, FirstIdAtTheEpochIsRandomToo)
{
	IdClock one{}, other{};

	EXPECT_NE(hex(next_id(one, 0, no_limit, 1000)), hex(next_id(other, 0, no_limit, 2000)));
}

TEST(Ids, LimitBeforeTheEpochStillGivesIds)
{
	for (int64_t limit_ms : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}})
	{
		IdClock clock{};
		Watch watch;

		for (int i = 0; i < 1000; i++)
			watch.see(next_id(clock, now_us, limit_ms, 0));
		watch.expect_clean();
		EXPECT_EQ(id_time_ms(watch.previous), 0);
	}
}

TEST(Ids, ClockBeyond48BitsIsHeldFromItsFirstMicrosecond)
{
	IdClock before{}, after{};

	EXPECT_EQ(hex(next_id(before, last_ms * 1000 + 999, no_limit, 0)).substr(0, 16), "ffffffffffff7ffb");
	EXPECT_EQ(hex(next_id(after, (last_ms + 1) * 1000, no_limit, 0)).substr(0, 16), "ffffffffffff7fff");
}

TEST(Ids, LimitBeyond48BitsIsNone)
{
	for (int shift = 48; shift < 63; shift++)
		for (int64_t above : {0, 1, 4095})
		{
			IdClock clock{};
			const int64_t limit_ms = (int64_t{1} << shift) + above;

			EXPECT_EQ(id_time_ms(next_id(clock, now_us, limit_ms, 0)), now_ms) << limit_ms;
		}
}

TEST(Ids, ClockBeyond48BitsIsHeld)
{
	IdClock clock{};
	Watch watch;

	for (int i = 0; i < 1000; i++)
		watch.see(next_id(clock, INT64_MAX, no_limit, UINT64_MAX));
	watch.expect_clean();
	EXPECT_EQ(id_time_ms(watch.previous), last_ms);
}

TEST(Ids, LastIdOfAllIsNeverFollowedByASmallerOne)
{
	IdClock clock{last_prefix, last_tail - 1};

	EXPECT_EQ(hex(next_id(clock, now_us, no_limit, UINT64_MAX)), "ffffffffffff7fffbfffffffffffffff");
	EXPECT_EQ(hex(next_id(clock, now_us, no_limit, UINT64_MAX)), "ffffffffffff7fffbfffffffffffffff");
}

TEST(Bounds, RoundTrip)
{
	auto random = outbox::test::generator();

	for (int64_t ms : {int64_t{0}, int64_t{1}, now_ms, last_ms - 1, last_ms})
		EXPECT_EQ(id_time_ms(first_id_at(ms)), ms);
	for (int i = 0; i < 100'000; i++)
	{
		const int64_t ms = static_cast<int64_t>(random() >> 16);

		ASSERT_EQ(id_time_ms(first_id_at(ms)), ms);
		ASSERT_TRUE(is_version_7(first_id_at(ms)));
	}
}

TEST(Bounds, SayTheSmallestId)
{
	EXPECT_EQ(hex(first_id_at(0)), "00000000000070008000000000000000");
	EXPECT_EQ(hex(first_id_at(0x0123456789ab)), "0123456789ab70008000000000000000");
}

TEST(Bounds, HoldWhatCannotBeSaid)
{
	EXPECT_EQ(hex(first_id_at(-1)), hex(first_id_at(0)));
	EXPECT_EQ(hex(first_id_at(INT64_MIN)), hex(first_id_at(0)));
	EXPECT_EQ(hex(first_id_at(last_ms + 1)), hex(first_id_at(last_ms)));
	EXPECT_EQ(hex(first_id_at(INT64_MAX)), hex(first_id_at(last_ms)));
}

TEST(Bounds, EncloseTheIdsOfTheirMillisecond)
{
	auto random = outbox::test::generator();

	for (int i = 0; i < 100'000; i++)
	{
		const int64_t us = static_cast<int64_t>(random() % (uint64_t{1} << 57));
		IdClock clock{};
		const Uuid id = next_id(clock, us, no_limit, random());

		ASSERT_LE(compare(first_id_at(us / 1000), id), 0) << us;
		ASSERT_LT(compare(id, first_id_at(us / 1000 + 1)), 0) << us;
	}
}

TEST(Bounds, EncloseTheExtremesToo)
{
	IdClock low{}, high{(uint64_t{now_ms} << 12) | 0xfff, last_tail - 1};
	const Uuid first = next_id(low, now_ms * 1000, no_limit, 0);
	const Uuid last = next_id(high, 0, no_limit, 0);

	EXPECT_LE(compare(first_id_at(now_ms), first), 0);
	EXPECT_EQ(id_time_ms(last), now_ms);
	EXPECT_LT(compare(last, first_id_at(now_ms + 1)), 0);
}

} // namespace
