// Backoff: the formula for every attempt_no, and a jitter that only shortens.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <iterator>
#include <limits>

#include "backoff.h"
#include "seed.h"

namespace {

using namespace outbox::core;

constexpr int64_t second = 1'000'000;
constexpr int64_t minute = 60 * second;

constexpr int attempts[] = {1, 2, 3, 10, 31, 32, 33, 62, 63, 64, 65, 66, 128, 1'000'000, INT_MAX};
constexpr int64_t amounts[] = {
	1,
	2,
	3,
	second,
	15 * minute,
	INT64_C(1) << 31,
	INT64_C(1) << 32,
	INT64_C(1) << 62,
	(INT64_C(1) << 62) + 1,
	INT64_MAX / 2,
	INT64_MAX / 2 + 1,
	INT64_MAX - 1,
	INT64_MAX,
};

static_assert(noexcept(backoff_us(0, 0, 0)));

// Doubles step by step in 128 bits; from 200 doublings on nothing changes.
int64_t
expected(int64_t base, int64_t cap, int attempt_no)
{
	__int128 delay = base;

	for (int i = 1; i < attempt_no && i < 200 && delay < cap; i++)
		delay *= 2;
	return static_cast<int64_t>(delay < cap ? delay : cap);
}

Uuid
random_id(std::mt19937_64 &random)
{
	Uuid id;

	for (unsigned char &byte : id.bytes)
		byte = static_cast<unsigned char>(random());
	return id;
}

TEST(Backoff, DefaultsOfAQueue)
{
	const int64_t seconds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900};

	for (int i = 0; i < 12; i++)
		EXPECT_EQ(backoff_us(second, 15 * minute, i + 1), seconds[i] * second) << i + 1;
}

TEST(Backoff, FormulaAtEveryEdge)
{
	for (int64_t base : amounts)
		for (int64_t cap : amounts)
			for (int attempt_no : attempts)
				EXPECT_EQ(backoff_us(base, cap, attempt_no), expected(base, cap, attempt_no))
					<< base << ' ' << cap << ' ' << attempt_no;
}

TEST(Backoff, FormulaAtRandom)
{
	auto random = outbox::test::generator();

	for (int i = 0; i < 300'000; i++)
	{
		const int64_t base = 1 + static_cast<int64_t>(random() >> (1 + random() % 63));
		const int64_t cap = static_cast<int64_t>(random() >> (1 + random() % 63));
		const int attempt_no = static_cast<int>(random() % 80);

		if (base <= 0)
			continue;
		ASSERT_EQ(backoff_us(base, cap, attempt_no), expected(base, cap, attempt_no))
			<< base << ' ' << cap << ' ' << attempt_no;
	}
}

TEST(Backoff, HugeCap)
{
	EXPECT_EQ(backoff_us(1, INT64_MAX, 1), 1);
	EXPECT_EQ(backoff_us(1, INT64_MAX, 2), 2);
	EXPECT_EQ(backoff_us(1, INT64_MAX, 31), INT64_C(1) << 30);
	EXPECT_EQ(backoff_us(1, INT64_MAX, 32), INT64_C(1) << 31);
	EXPECT_EQ(backoff_us(1, INT64_MAX, 63), INT64_C(1) << 62);
	for (int attempt_no : {64, 65, 1'000'000, INT_MAX})
		EXPECT_EQ(backoff_us(1, INT64_MAX, attempt_no), INT64_MAX) << attempt_no;
}

TEST(Backoff, HugeBase)
{
	for (int attempt_no : attempts)
	{
		EXPECT_EQ(backoff_us(INT64_MAX, INT64_MAX, attempt_no), INT64_MAX) << attempt_no;
		EXPECT_EQ(backoff_us(INT64_MAX, minute, attempt_no), minute) << attempt_no;
	}
}

TEST(Backoff, AttemptBelowOneBehavesAsOne)
{
	for (int attempt_no : {0, -1, -64, INT_MIN})
	{
		EXPECT_EQ(backoff_us(second, minute, attempt_no), second) << attempt_no;
		EXPECT_EQ(jittered_backoff_us(second, minute, attempt_no, 1, Uuid{}),
				  jittered_backoff_us(second, minute, 1, 1, Uuid{}))
			<< attempt_no;
	}
}

TEST(Backoff, NoBaseNoDelay)
{
	for (int64_t base : {int64_t{0}, int64_t{-1}, INT64_MIN})
		for (int attempt_no : attempts)
		{
			EXPECT_EQ(backoff_us(base, INT64_MAX, attempt_no), 0);
			EXPECT_EQ(jittered_backoff_us(base, INT64_MAX, attempt_no, 1, Uuid{}), 0);
		}
}

TEST(Backoff, CapBelowBaseGivesCap)
{
	for (int64_t cap : {int64_t{0}, int64_t{1}, second - 1, second})
		for (int attempt_no : {-1, 0, 1, 2, 64, INT_MAX})
			EXPECT_EQ(backoff_us(second, cap, attempt_no), cap) << cap << ' ' << attempt_no;
	EXPECT_EQ(backoff_us(second, -5, 3), -5);
	EXPECT_EQ(jittered_backoff_us(second, -5, 3, 1, Uuid{}), -5);
}

TEST(Jitter, NoneGivesTheFormula)
{
	auto random = outbox::test::generator();
	const double none[] = {0, -0.0, -1, std::numeric_limits<double>::quiet_NaN()};

	for (double jitter : none)
		for (int attempt_no : attempts)
			for (int64_t base : amounts)
				EXPECT_EQ(jittered_backoff_us(base, INT64_MAX, attempt_no, jitter, random_id(random)),
						  backoff_us(base, INT64_MAX, attempt_no));
}

TEST(Jitter, OnlyShortensAndNotByMoreThanItsShare)
{
	auto random = outbox::test::generator();

	for (int i = 0; i < 300'000; i++)
	{
		const int64_t delay = amounts[random() % std::size(amounts)];
		const double jitter = static_cast<double>(random() % 101) / 100;
		const int64_t got = jittered_backoff_us(delay, delay, 1, jitter, random_id(random));
		const long double least = static_cast<long double>(delay) * (1 - static_cast<long double>(jitter));

		ASSERT_LE(got, delay) << jitter;
		// Beyond 2^53 the arithmetic in double costs a part in 2^52.
		ASSERT_GE(static_cast<long double>(got), least - 1 - static_cast<long double>(delay) * 0x1p-52L)
			<< delay << ' ' << jitter;
		ASSERT_GT(got, 0) << delay << ' ' << jitter;
	}
}

uint64_t
unshift(uint64_t x, int by)
{
	for (int done = by; done < 64; done *= 2)
		x ^= x >> done;
	return x;
}

uint64_t
odd_inverse(uint64_t odd)
{
	uint64_t inverse = odd;

	for (int i = 0; i < 6; i++)
		inverse *= 2 - odd * inverse;
	return inverse;
}

uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

uint64_t
unmix(uint64_t x)
{
	x = unshift(x, 31) * odd_inverse(0x94d049bb133111eb);
	x = unshift(x, 27) * odd_inverse(0xbf58476d1ce4e5b9);
	return unshift(x, 30) - 0x9e3779b97f4a7c15;
}

// The id whose first attempt draws this hash: the mix can be run backwards.
Uuid
id_that_draws(uint64_t hash)
{
	uint64_t low = unmix(unmix(hash) ^ 1) ^ mix(0);
	Uuid id{};

	for (int i = 15; i >= 8; i--, low >>= 8)
		id.bytes[i] = static_cast<unsigned char>(low);
	return id;
}

TEST(Jitter, SmallestFractionCutsNothing)
{
	for (int64_t delay : amounts)
		EXPECT_EQ(jittered_backoff_us(delay, delay, 1, 1, id_that_draws(0)), delay);
}

TEST(Jitter, LargestFractionLeavesSomething)
{
	auto random = outbox::test::generator();
	const Uuid id = id_that_draws(UINT64_MAX);

	EXPECT_EQ(jittered_backoff_us(second, second, 1, 1, id), 1);
	EXPECT_EQ(jittered_backoff_us(INT64_MAX, INT64_MAX, 1, 1, id), 1023);
	for (int i = 0; i < 300'000; i++)
	{
		const int64_t delay = 1 + static_cast<int64_t>(random() % INT64_MAX >> random() % 63);
		const int64_t got = jittered_backoff_us(delay, delay, 1, 1, id);

		ASSERT_GT(got, 0) << delay;
		ASSERT_LE(got, 1 + (delay >> 51)) << delay;
	}
}

TEST(Jitter, MoreThanAllIsAll)
{
	auto random = outbox::test::generator();

	for (double jitter : {1.5, 1e300, std::numeric_limits<double>::infinity()})
		for (int i = 0; i < 1000; i++)
		{
			const Uuid id = random_id(random);

			ASSERT_EQ(jittered_backoff_us(minute, minute, 1, jitter, id),
					  jittered_backoff_us(minute, minute, 1, 1, id));
		}
}

TEST(Jitter, IsPure)
{
	auto random = outbox::test::generator();

	for (int i = 0; i < 1000; i++)
	{
		const Uuid id = random_id(random);
		const int attempt_no = static_cast<int>(random() % 100);
		const int64_t first = jittered_backoff_us(second, minute, attempt_no, 0.5, id);

		jittered_backoff_us(second, minute, attempt_no + 1, 0.5, random_id(random));
		ASSERT_EQ(jittered_backoff_us(second, minute, attempt_no, 0.5, id), first);
	}
}

// Computed apart from this code, in Python: the same on every machine and release.
TEST(Jitter, KnownValues)
{
	const Uuid rfc{{0x01, 0x7f, 0x22, 0xe2, 0x79, 0xb0, 0x7c, 0xc3, 0x98, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f}};

	EXPECT_EQ(jittered_backoff_us(minute, minute, 1, 1, Uuid{}), 48938000);
	EXPECT_EQ(jittered_backoff_us(minute, minute, 1, 1, rfc), 46216057);
	EXPECT_EQ(jittered_backoff_us(minute, minute, 7, 0.25, rfc), 49005461);
}

TEST(Jitter, DependsOnEveryBitOfTheIdAndOnTheAttempt)
{
	constexpr int64_t day = 24 * 60 * minute;
	const int64_t plain = jittered_backoff_us(day, day, 1, 1, Uuid{});

	for (int bit = 0; bit < 128; bit++)
	{
		Uuid id{};

		id.bytes[bit / 8] = static_cast<unsigned char>(1 << bit % 8);
		EXPECT_NE(jittered_backoff_us(day, day, 1, 1, id), plain) << bit;
	}
	for (int attempt_no = 2; attempt_no < 100; attempt_no++)
		EXPECT_NE(jittered_backoff_us(day, day, attempt_no, 1, Uuid{}), plain) << attempt_no;
}

// Ids of one burst differ in their last bits only; the retries must spread all the same.
TEST(Jitter, SpreadsNeighboursEvenly)
{
	constexpr int ids = 100'000, slots = 10;
	int hits[slots] = {};

	for (int i = 0; i < ids; i++)
	{
		Uuid id{};

		for (int byte = 0; byte < 4; byte++)
			id.bytes[15 - byte] = static_cast<unsigned char>(i >> 8 * byte);
		hits[(jittered_backoff_us(minute, minute, 3, 1, id) - 1) * slots / minute]++;
	}
	for (int slot = 0; slot < slots; slot++)
		EXPECT_NEAR(hits[slot], ids / slots, ids / slots / 20) << slot;
}

} // namespace
