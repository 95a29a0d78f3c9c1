#include "core/breaker.h"

#include <gtest/gtest.h>

using relay::Breaker;
using namespace std::chrono_literals;

namespace {

const Breaker::Clock::time_point start{};

// The pause between two times of the breaker's.
double
seconds(Breaker::Clock::duration duration)
{
	return std::chrono::duration<double>(duration).count();
}

} // namespace

TEST(Breaker, LetsEverythingPassWhileClosed)
{
	Breaker breaker;

	EXPECT_TRUE(breaker.closed());
	EXPECT_TRUE(breaker.admits(0));
	EXPECT_TRUE(breaker.admits(1'000'000));
}

TEST(Breaker, OpensOnceForAnOutage)
{
	Breaker breaker;

	EXPECT_TRUE(breaker.away(start, 0));
	EXPECT_FALSE(breaker.away(start, 0));
	EXPECT_FALSE(breaker.admits(0));
	// What was in the sink's hands answers late, and closes nothing.
	breaker.answered();
	EXPECT_FALSE(breaker.admits(0));
}

TEST(Breaker, ProbesThenTriesOneMessage)
{
	Breaker breaker;

	breaker.away(start, 0);
	breaker.probing();
	EXPECT_FALSE(breaker.admits(0));
	breaker.probed(true, start, 0);
	EXPECT_TRUE(breaker.admits(0));
	EXPECT_FALSE(breaker.admits(1));
	breaker.answered();
	EXPECT_TRUE(breaker.closed());
}

TEST(Breaker, DoublesThePauseToAMinute)
{
	Breaker breaker;
	auto now = start;

	breaker.away(now, 1);
	for (double expected : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0})
	{
		EXPECT_DOUBLE_EQ(seconds(breaker.probe_at() - now), expected);
		now = breaker.probe_at();
		breaker.probing();
		breaker.probed(false, now, 1);
	}
}

TEST(Breaker, KeepsThePauseUntilAMessageGotThrough)
{
	Breaker breaker;

	breaker.away(start, 1);
	breaker.probing();
	breaker.probed(true, start, 1);
	EXPECT_TRUE(breaker.away(start, 1));
	EXPECT_DOUBLE_EQ(seconds(breaker.probe_at() - start), 2.0);
	breaker.probing();
	breaker.probed(true, start, 1);
	breaker.answered();
	EXPECT_TRUE(breaker.away(start, 1));
	EXPECT_DOUBLE_EQ(seconds(breaker.probe_at() - start), 1.0);
}

TEST(Breaker, TakesBetweenHalfAndTheWholePause)
{
	for (double chance : {0.0, 0.3, 0.999})
	{
		Breaker breaker;

		breaker.away(start, chance);
		EXPECT_GE(seconds(breaker.probe_at() - start), 0.5);
		EXPECT_LE(seconds(breaker.probe_at() - start), 1.0);
	}
}
