// When a relay is ready, and what its rates were.
#include <gtest/gtest.h>

#include "seen/board.h"
#include "seen/history.h"

namespace {

using namespace relay;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

SourceState
working()
{
	SourceState source;

	source.connected = source.listening = true;
	source.last_claim = Clock::now();
	source.poll_interval = 1h; // no test is slow enough
	return source;
}

SinkState
with_breaker(const std::string &endpoint, const std::string &breaker)
{
	SinkState sink;

	sink.endpoints.push_back({endpoint, breaker, {}});
	return sink;
}

struct Readiness {
	bool ready;
	std::string problem;
};

Readiness
readiness(const Board &board)
{
	Readiness result{};

	result.ready = board.ready(result.problem);
	return result;
}

TEST(Board, NotReadyBeforeASourceIsThere)
{
	const Board board;

	EXPECT_FALSE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem, "no source has started yet");
}

TEST(Board, EachConditionOfASource)
{
	Board board;
	auto source = working();

	board.put("bank", source);
	EXPECT_TRUE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem, "");

	source.last_claim = Clock::now() - 4h;
	board.put("bank", source);
	EXPECT_FALSE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem, "source bank: the last claim was answered 14400 s ago");

	source.last_claim.reset();
	board.put("bank", source);
	EXPECT_FALSE(readiness(board).ready);

	source = working();
	source.listening = false;
	board.put("bank", source);
	EXPECT_EQ(readiness(board).problem, "source bank: LISTEN does not stand");

	source.connected = false;
	source.problem = "refused";
	board.put("bank", source);
	EXPECT_FALSE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem, "source bank: the database is not connected: refused");
}

TEST(Board, SaysWhyAWorkingConnectionDoesNotClaim)
{
	Board board;
	auto source = working();

	source.problem = "permission denied";
	board.put("bank", source);
	EXPECT_EQ(readiness(board).problem, "");
	source.last_claim.reset();
	board.put("bank", source);
	EXPECT_EQ(readiness(board).problem, "source bank: no claim was answered yet: permission denied");
}

TEST(Board, ReadyWithAConfigurationThatWasRefused)
{
	Board board;

	board.put("bank", working());
	board.configuration("line 1: wrong");
	EXPECT_TRUE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem,
			  "configuration: wrong when it was read again, the one before is in force: line 1: wrong");
	board.configuration({});
	EXPECT_EQ(readiness(board).problem, "");
}

TEST(Board, ReadyWhileOneSourceWorks)
{
	Board board;

	board.put("bank", working());
	board.put("shop", SourceState{});
	EXPECT_TRUE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem, "source shop: the database is not connected");
	board.remove_source("bank");
	EXPECT_FALSE(readiness(board).ready);
}

TEST(Board, NotReadyWhenEverySinkIsAway)
{
	Board board;

	board.put("bank", working());
	board.put("kafka", with_breaker("", "open"));
	EXPECT_FALSE(readiness(board).ready);
	EXPECT_EQ(readiness(board).problem, "sink kafka: away");
	board.put("http", with_breaker("https://a.example:443", "open"));
	EXPECT_TRUE(readiness(board).ready) << "one endpoint is not the sink";
	board.remove_sink("http");
	board.put("kafka", with_breaker("", "half open"));
	EXPECT_FALSE(readiness(board).ready);
	board.put("kafka", SinkState{});
	EXPECT_TRUE(readiness(board).ready);
}

TEST(Board, WatchedOnceLookedAt)
{
	Board board;

	EXPECT_FALSE(board.watched());
	board.looked();
	EXPECT_TRUE(board.watched());
}

class HistoryTest : public testing::Test {
protected:
	void claim(uint64_t claimed, std::chrono::seconds later)
	{
		SourceState source;
		source.claimed = claimed;
		board.put("bank", source);
		history.sample(now += later);
	}

	[[nodiscard]] Rates rates() const { return history.claimed().at("bank"); }

	Board board;
	History history{board};
	Clock::time_point now = Clock::now();
};

TEST_F(HistoryTest, IsEmptyAtFirst)
{
	EXPECT_TRUE(history.claimed().empty());
	claim(100, 0s);
	EXPECT_EQ(rates(), Rates(History::length)) << "one sample makes no rate";
}

TEST_F(HistoryTest, DividesByTheTimeThatPassed)
{
	claim(100, 0s);
	claim(150, 5s);
	claim(150, 5s);
	claim(250, 20s);
	const auto found = rates();
	EXPECT_EQ(found.size(), History::length);
	EXPECT_EQ(found[History::length - 4], std::nullopt);
	EXPECT_EQ(found[History::length - 3], 10);
	EXPECT_EQ(found[History::length - 2], 0);
	EXPECT_EQ(found[History::length - 1], 5);
}

TEST_F(HistoryTest, ACounterThatBeginsAgainIsNotNegative)
{
	claim(1000, 0s);
	claim(20, 5s);
	EXPECT_EQ(rates().back(), 4);
}

TEST_F(HistoryTest, KeepsFifteenMinutes)
{
	for (uint64_t i = 0; i < 500; i++)
	{
		claim(i * i, 5s);
	}
	const auto found = rates();
	EXPECT_EQ(found.size(), History::length);
	EXPECT_DOUBLE_EQ(*found.front(), (2 * 319 + 1) / 5.);
	EXPECT_DOUBLE_EQ(*found.back(), (2 * 498 + 1) / 5.);
}

TEST_F(HistoryTest, SinksComeAndGo)
{
	SinkState sink;

	history.sample(now);
	board.put("kafka", sink);
	history.sample(now += 5s);
	sink.accepted = 50;
	sink.refused = 5;
	sink.try_again = 10;
	sink.away = 20;
	board.put("kafka", sink);
	history.sample(now += 5s);
	EXPECT_EQ(history.sinks().at("kafka").accepted.back(), 10);
	EXPECT_EQ(history.sinks().at("kafka").failed.back(), 7);
	board.remove_sink("kafka");
	history.sample(now += 5s);
	EXPECT_TRUE(history.sinks().empty());
}

TEST_F(HistoryTest, EndsWhileItWaits)
{
	board.put("bank", working());
	history.start();
	while (history.claimed().empty())
	{
		std::this_thread::yield();
	}
}

} // namespace
