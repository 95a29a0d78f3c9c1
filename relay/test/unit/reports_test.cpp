#include "flow/reports.h"

#include <gtest/gtest.h>

using namespace relay;
using namespace std::chrono_literals;

namespace {

const Clock::time_point start{};

Outcome
outcome(uint64_t number, const char *text = "")
{
	Outcome one;

	one.number = number;
	one.verdict = Verdict::try_again;
	one.answer.code = "CODE";
	one.answer.text = text;
	return one;
}

std::vector<uint64_t>
numbers(const std::vector<Outcome> &outcomes)
{
	std::vector<uint64_t> result;

	for (const Outcome &one : outcomes)
		result.push_back(one.number);
	return result;
}

} // namespace

TEST(Reports, GathersForAMoment)
{
	Reports reports;

	EXPECT_FALSE(reports.due(start, true));
	reports.add(outcome(1), start);
	EXPECT_FALSE(reports.due(start, false));
	EXPECT_TRUE(reports.due(start, true));
	EXPECT_TRUE(reports.due(start + Reports::gathering, false));
	EXPECT_EQ(reports.due_at(), start + Reports::gathering);
}

TEST(Reports, SendsAtMostSoManyAtOnce)
{
	Reports reports;

	for (size_t i = 0; i <= Reports::most; i++)
		reports.add(outcome(i), start);
	EXPECT_TRUE(reports.due(start, false));
	EXPECT_EQ(reports.of(reports.take()).size(), Reports::most);
	EXPECT_EQ(reports.of(reports.take()).size(), 1u);
	EXPECT_EQ(reports.size(), Reports::most + 1);
}

TEST(Reports, KeepsWhatWasSentUntilItIsAnswered)
{
	Reports reports;

	reports.add(outcome(1), start);
	reports.add(outcome(2), start);
	reports.take();
	reports.add(outcome(3), start);
	reports.disconnected();
	EXPECT_EQ(numbers(reports.of(reports.take())), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(Reports, RepeatsInHalvesWhatIsRefusedForItsData)
{
	Reports reports;

	for (uint64_t i = 1; i <= 4; i++)
		reports.add(outcome(i, i == 3 ? "bad" : "good"), start);

	std::vector<uint64_t> recorded;
	std::optional<Outcome> hopeless;
	for (int tries = 0; !reports.empty(); tries++)
	{
		ASSERT_LT(tries, 20);
		auto report = reports.take();
		bool bad = false;
		for (const Outcome &one : reports.of(report))
			bad = bad || one.answer.text == "bad";
		if (bad)
			hopeless = reports.refused(report, true, start);
		else
		{
			for (const Outcome &one : reports.answered(report))
				recorded.push_back(one.number);
		}
	}
	// Without its text it can be recorded.
	EXPECT_EQ(recorded.size(), 4u);
	EXPECT_FALSE(hopeless);
}

TEST(Reports, GivesUpWhatIsRefusedAloneAndWithoutTexts)
{
	Reports reports;

	reports.add(outcome(1, "bad"), start);
	EXPECT_FALSE(reports.refused(reports.take(), true, start));
	auto hopeless = reports.refused(reports.take(), true, start);
	ASSERT_TRUE(hopeless);
	EXPECT_EQ(hopeless->number, 1u);
	EXPECT_TRUE(reports.empty());
}

TEST(Reports, WaitsAfterAnotherError)
{
	Reports reports;

	reports.add(outcome(1), start);
	reports.refused(reports.take(), false, start + 1s);
	EXPECT_FALSE(reports.due(start, true));
	EXPECT_TRUE(reports.due(start + 1s, true));
}

TEST(Reports, MakesTextsFitForTheDatabase)
{
	EXPECT_EQ(clean("plain \u00e4 \U0001f600"), "plain \u00e4 \U0001f600");
	EXPECT_EQ(clean(std::string_view("a\0b", 3)), "a\xef\xbf\xbd"
												  "b");
	EXPECT_EQ(clean("\xff\xc3"), "\xef\xbf\xbd\xef\xbf\xbd");
	EXPECT_EQ(clean("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a surrogate
	EXPECT_EQ(clean("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                 // overlong
	EXPECT_EQ(clean("\xf4\x90\x80\x80").size(), 12u);                         // above U+10FFFF
}

TEST(Reports, LeavesOutArraysOfWhichNothingIsGiven)
{
	Outcome accepted;

	accepted.answer.accepted = true;
	auto parameters = report_parameters("w", {accepted});
	ASSERT_EQ(parameters.size(), 10u);
	EXPECT_EQ(parameters[3].value, R"({"DISPATCHED"})");
	EXPECT_EQ(parameters[4].value, std::nullopt);
	EXPECT_EQ(parameters[6].value, std::nullopt);

	auto again = outcome(1);
	again.answer.retry_after = 2s;
	parameters = report_parameters("w", {accepted, again});
	EXPECT_EQ(parameters[3].value, R"({"DISPATCHED","RETRYABLE"})");
	EXPECT_EQ(parameters[6].value, R"({NULL,"CODE"})");
	EXPECT_EQ(parameters[9].value, R"({NULL,"2000 milliseconds"})");
}
