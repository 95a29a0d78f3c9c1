#include "flow/claims.h"

#include <gtest/gtest.h>

using namespace relay;

namespace {

ClaimPlan
sent(Appetite &appetite, size_t size)
{
	ClaimPlan plan;

	plan.size = size;
	appetite.sent(plan);
	return plan;
}

} // namespace

TEST(Appetite, ClaimsAtTheStartAndThenWaits)
{
	Appetite appetite;

	EXPECT_TRUE(appetite.hungry());
	auto plan = sent(appetite, 10);
	EXPECT_FALSE(appetite.hungry());
	EXPECT_FALSE(appetite.idle());
	appetite.answered(plan, 3);
	EXPECT_FALSE(appetite.hungry());
	EXPECT_TRUE(appetite.idle());
	appetite.notified();
	EXPECT_TRUE(appetite.hungry());
}

TEST(Appetite, ClaimsTwiceAtATimeWhileClaimsAreFull)
{
	Appetite appetite;
	auto first = sent(appetite, 10);

	appetite.answered(first, 10);
	auto second = sent(appetite, 10);
	EXPECT_TRUE(appetite.hungry());
	auto third = sent(appetite, 10);
	EXPECT_FALSE(appetite.hungry());
	appetite.answered(second, 2);
	appetite.answered(third, 0);
	EXPECT_TRUE(appetite.idle());
}

TEST(Appetite, ClaimsAgainAfterANotificationDuringAClaim)
{
	Appetite appetite;
	auto plan = sent(appetite, 10);

	appetite.notified();
	EXPECT_FALSE(appetite.hungry());
	appetite.answered(plan, 0);
	EXPECT_TRUE(appetite.hungry());
	plan = sent(appetite, 10);
	appetite.answered(plan, 0);
	EXPECT_TRUE(appetite.idle());
}

// The second of two claims was sent before the notification as well.
TEST(Appetite, ForgetsNoNotificationWhileTwoClaimsAreUnderWay)
{
	Appetite appetite;

	appetite.answered(sent(appetite, 1), 1);
	auto first = sent(appetite, 10), second = sent(appetite, 10);
	appetite.notified();
	appetite.answered(first, 0);
	appetite.answered(second, 0);
	EXPECT_TRUE(appetite.hungry());
}

TEST(Appetite, ClaimsAfterAReconnect)
{
	Appetite appetite;

	appetite.answered(sent(appetite, 10), 0);
	sent(appetite, 10);
	appetite.disconnected();
	EXPECT_TRUE(appetite.hungry());
}

TEST(Interval, IsInMilliseconds)
{
	EXPECT_EQ(interval(std::nullopt), std::nullopt);
	EXPECT_EQ(interval(std::chrono::milliseconds(1500)), "1500 milliseconds");
}

TEST(ArrayLiteral, QuotesEverything)
{
	EXPECT_EQ(array_literal(Texts{}), "{}");
	EXPECT_EQ(array_literal(Texts{"a", std::nullopt, "NULL", "", R"(x"y\z,{})"}),
			  R"({"a",NULL,"NULL","","x\"y\\z,{}"})");
}
