// Which messages the sink rabbitmq publishes with care.
#include <gtest/gtest.h>

#if __has_include(<amqp.h>)

#include "message.h"
#include "sinks/rabbitmq_doubts.h"

#include "sinks/rabbitmq_library.h"

namespace {

using namespace relay;
using namespace relay::rabbitmq;
using namespace std::chrono_literals;

Delivery
delivery(const std::string &id, const std::string &exchange = "orders", const std::string &key = "placed")
{
	Delivery result;
	result.message = test::message();
	result.message.event_id = id;
	result.to.exchange = exchange;
	result.to.topic = key;
	return result;
}

struct RabbitmqDoubts : testing::Test {
	Doubts doubts;
	Doubts::Clock::time_point now{};
	Delivery one = delivery("1"), two = delivery("2");

	void SetUp() override { doubts.clear(delivery("0"), 10); } // the exchange takes messages
	void blame(const Delivery &who, int code, size_t size = 10)
	{
		doubts.blame(who, size, code, {"CODE", std::to_string(code), "text"}, now);
	}
};

TEST_F(RabbitmqDoubts, ExchangeIsDoubtedUntilItTakesAMessage)
{
	EXPECT_EQ(doubts.care(one, 10), Care::none);
	EXPECT_EQ(doubts.care(delivery("3", "others"), 10), Care::channel);
	doubts.clear(delivery("3", "others"), 10);
	EXPECT_EQ(doubts.care(delivery("4", "others"), 10), Care::none);
	doubts.forget_exchanges();
	EXPECT_EQ(doubts.care(one, 10), Care::channel);
}

TEST_F(RabbitmqDoubts, RefusedAddressRests)
{
	blame(one, AMQP_ACCESS_REFUSED);
	doubts.clear(delivery("5", "orders", "other"), 10);
	ASSERT_NE(doubts.refused(two, now), nullptr);
	EXPECT_EQ(doubts.refused(two, now)->code, "CODE");
	EXPECT_EQ(doubts.refused(delivery("6", "orders", "other"), now), nullptr);
	EXPECT_EQ(doubts.care(delivery("6", "orders", "other"), 10), Care::none);

	now += 1s;
	EXPECT_EQ(doubts.refused(two, now), nullptr);
	EXPECT_EQ(doubts.care(two, 10), Care::channel);
	doubts.clear(two, 10);
	EXPECT_EQ(doubts.care(two, 10), Care::none);
}

TEST_F(RabbitmqDoubts, MissingExchangeIsDoubtedUnderEveryKey)
{
	blame(one, AMQP_NOT_FOUND);
	EXPECT_EQ(doubts.care(delivery("5", "orders", "other"), 10), Care::channel);
}

TEST_F(RabbitmqDoubts, SizesFromARefusedOneOn)
{
	blame(one, AMQP_PRECONDITION_FAILED, 1000);
	EXPECT_EQ(doubts.care(two, 999), Care::none);
	EXPECT_EQ(doubts.care(two, 1000), Care::channel);
	doubts.clear(two, 1000); // so it was not the size
	EXPECT_EQ(doubts.care(two, 1000), Care::none);
}

TEST_F(RabbitmqDoubts, SuspectsUntilTheyAreAnswered)
{
	doubts.suspect(one, Care::channel);
	doubts.suspect(two, Care::connection);
	EXPECT_EQ(doubts.care(one, 10), Care::channel);
	EXPECT_EQ(doubts.care(two, 10), Care::connection);
	EXPECT_TRUE(doubts.about_connections());
	doubts.suspect(two, Care::channel);
	EXPECT_FALSE(doubts.about_connections());
	doubts.suspect(two, Care::connection);
	doubts.clear(one, 10);
	doubts.clear(two, 10);
	EXPECT_EQ(doubts.care(one, 10), Care::none);
	EXPECT_EQ(doubts.care(two, 10), Care::none);
	EXPECT_FALSE(doubts.about_connections());
}

TEST_F(RabbitmqDoubts, MemoryIsBounded)
{
	for (int i = 0; i < 51'000; i++)
		doubts.suspect(delivery(std::to_string(i)), Care::connection);
	EXPECT_EQ(doubts.care(delivery("0"), 10), Care::none);
	EXPECT_EQ(doubts.care(delivery("50999"), 10), Care::connection);
}

} // namespace

#endif
