// The table of the sink rabbitmq has what the headers of rabbitmq-c have.
#include <gtest/gtest.h>

#include "header.h"
#include "sinks/rabbitmq_codes.h"

#if __has_include(<amqp.h>)

#include "sinks/rabbitmq_library.h"

namespace {

using namespace relay;

#if __has_include(<rabbitmq-c/amqp.h>)
constexpr char statuses[] = "/usr/include/rabbitmq-c/amqp.h", replies[] = "/usr/include/rabbitmq-c/framing.h";
#else
constexpr char statuses[] = "/usr/include/amqp.h", replies[] = "/usr/include/amqp_framing.h";
#endif

TEST(RabbitmqCodes, EveryStatusHasARow)
{
	Taxonomy table(rabbitmq::codes());
	auto names = test::names_in(statuses, R"(^\s+(AMQP_STATUS_\w+) = -0x)");
	EXPECT_GT(names.size(), 25u);
	for (const std::string &name : names)
		EXPECT_TRUE(table.known(name)) << name;
}

TEST(RabbitmqCodes, EveryReplyHasARow)
{
	Taxonomy table(rabbitmq::codes());
	auto names = test::names_in(replies, R"(^#define (AMQP_\w+) [2-5][0-9][0-9] +/\*\*< Constant:)");
	names.erase("AMQP_FRAME_END");
	EXPECT_EQ(names.size(), 19u);
	for (const std::string &name : names)
		EXPECT_TRUE(table.known(name)) << name;
}

TEST(RabbitmqCodes, NumbersHaveTheNamesOfTheHeader)
{
	EXPECT_EQ(rabbitmq::code_of(AMQP_NOT_FOUND), "AMQP_NOT_FOUND");
	EXPECT_EQ(rabbitmq::code_of(AMQP_STATUS_HEARTBEAT_TIMEOUT), "AMQP_STATUS_HEARTBEAT_TIMEOUT");
	EXPECT_EQ(rabbitmq::code_of(AMQP_STATUS_SSL_PEER_VERIFY_FAILED), "AMQP_STATUS_SSL_PEER_VERIFY_FAILED");
}

TEST(RabbitmqCodes, WhatIsUnknownIsTriedAgain)
{
	Taxonomy table(rabbitmq::codes());
	for (int number : {599, -0x300})
	{
		std::string code = rabbitmq::code_of(number);
		EXPECT_FALSE(table.known(code)) << code;
		EXPECT_EQ(table.of(code), Fault::moment);
	}
}

TEST(RabbitmqCodes, Classes)
{
	Taxonomy table(rabbitmq::codes());
	EXPECT_EQ(table.of("AMQP_PRECONDITION_FAILED"), Fault::message);
	EXPECT_EQ(table.of("AMQP_STATUS_TABLE_TOO_BIG"), Fault::message);
	EXPECT_EQ(table.of("AMQP_NO_ROUTE"), Fault::moment);
	EXPECT_EQ(table.of("AMQP_NACK"), Fault::moment);
	EXPECT_EQ(table.of("AMQP_NOT_FOUND"), Fault::moment);
	EXPECT_EQ(table.of("AMQP_CHANNEL_CLOSED"), Fault::sink);
	EXPECT_EQ(table.of("AMQP_LOGIN_REFUSED"), Fault::sink);
	EXPECT_EQ(table.of("AMQP_STATUS_SOCKET_ERROR"), Fault::sink);
}

TEST(RabbitmqCodes, EachOnceAndWithAReason)
{
	std::set<std::string_view> seen;
	for (const Code &code : rabbitmq::codes())
	{
		EXPECT_TRUE(seen.insert(code.code).second) << code.code;
		EXPECT_FALSE(code.why.empty()) << code.code;
	}
}

} // namespace

#endif
