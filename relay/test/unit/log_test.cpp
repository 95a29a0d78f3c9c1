// Lines of the log, plain and hostile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/secret.h"
#include "seen/log.h"

namespace {

using namespace relay;
using nlohmann::json;

const std::string hostile = "a\"b\\c\n\r\t\x1b[2J\x7f\xc2\x9b\xff\xc3\xa9";

class Log : public testing::Test {
protected:
	static std::string logged(const LogSettings &settings, Level level, std::string_view text, Fields fields)
	{
		set_up_log(settings);
		testing::internal::CaptureStderr();
		log(level, text, fields);
		return testing::internal::GetCapturedStderr();
	}

	void TearDown() override { set_up_log({}); }
};

TEST_F(Log, JsonHasTheFields)
{
	const auto line =
		logged({.json = true}, Level::warning, "published", {{"event_id", "4d47"}, {"code", ""}, {"sink", "a"}});
	const auto object = json::parse(line);

	EXPECT_EQ(line.back(), '\n');
	EXPECT_EQ(object["level"], "warning");
	EXPECT_EQ(object["message"], "published");
	EXPECT_EQ(object["event_id"], "4d47");
	EXPECT_EQ(object["sink"], "a");
	EXPECT_FALSE(object.contains("code")) << "an empty field is left out";
}

TEST_F(Log, JsonTimeIsRfc3339)
{
	auto time = json::parse(logged({.json = true}, Level::info, "x", {}))["time"].get<std::string>();

	std::replace_if(
		time.begin(), time.end(), [](unsigned char c) { return std::isdigit(c) != 0; }, '0');
	EXPECT_EQ(time, "0000-00-00T00:00:00.000Z");
}

TEST_F(Log, JsonEscapes)
{
	const auto line = logged({.json = true}, Level::error, hostile, {{"sink", hostile}});
	const auto object = json::parse(line);
	const std::string expected = "a\"b\\c\n\r\t\x1b[2J\x7f\xc2\x9b\xef\xbf\xbd\xc3\xa9";

	EXPECT_EQ(object["message"], expected);
	EXPECT_EQ(object["sink"], expected);
	EXPECT_EQ(line.find('\n'), line.size() - 1);
	EXPECT_EQ(line.find_first_of("\x1b\x7f"), std::string::npos);
	EXPECT_EQ(line.find("\xc2\x9b"), std::string::npos) << "a control character that terminals obey";
}

TEST_F(Log, TextIsOneLine)
{
	const auto line = logged({}, Level::info, hostile, {{"sink", hostile}, {"plain", "a-b/1"}, {"spaced", "a b"}});

	EXPECT_EQ(line.find('\n'), line.size() - 1);
	EXPECT_EQ(line.find_first_of("\x1b\x7f\r\t"), std::string::npos);
	EXPECT_NE(line.find(" info a\"b\\\\c\\n\\r\\t"), std::string::npos) << line;
	EXPECT_NE(line.find(" plain=a-b/1 spaced=\"a b\"\n"), std::string::npos) << line;
}

TEST_F(Log, TextCannotForgeAField)
{
	const auto line = logged({}, Level::info, "x", {{"queue", "a code=HTTP_200"}, {"key", "b=c"}, {"quote", "\""}});

	EXPECT_NE(line.find(R"(queue="a code=HTTP_200" key="b=c" quote="\"")"), std::string::npos) << line;
}

TEST_F(Log, SecretsAreRedactedBeforeTheyAreEscaped)
{
	const Secret secret("pass\"word\n7");

	for (const bool as_json : {false, true})
	{
		const auto line = logged({.json = as_json}, Level::error, "could not connect: pass\"word\n7 is wrong",
								 {{"dsn", "password=pass\"word\n7"}});
		EXPECT_EQ(line.find("word\\"), std::string::npos) << line;
		EXPECT_EQ(line.find("\"word"), std::string::npos) << line;
		EXPECT_NE(line.find("could not connect: *** is wrong"), std::string::npos) << line;
		EXPECT_NE(line.find("password=***"), std::string::npos) << line;
	}
}

TEST_F(Log, Levels)
{
	EXPECT_EQ(logged({.level = Level::warning}, Level::info, "x", {}), "");
	EXPECT_FALSE(logs(Level::info));
	EXPECT_TRUE(logs(Level::warning));
	EXPECT_NE(logged({.level = Level::debug}, Level::debug, "x", {}), "");
}

TEST_F(Log, LinesAreWholeWhileTheSettingsChange)
{
	testing::internal::CaptureStderr();
	{
		std::vector<std::jthread> threads;
		for (int i = 0; i < 3; i++)
		{
			threads.emplace_back([] {
				for (int line = 0; line < 500; line++)
				{
					log(Level::info, "whole", {{"sink", "a b"}});
				}
			});
		}
		for (int i = 0; i < 100; i++)
		{
			set_up_log({.json = i % 2 == 0});
		}
	}
	std::istringstream lines(testing::internal::GetCapturedStderr());
	size_t count = 0;

	for (std::string line; std::getline(lines, line); count++)
	{
		const auto object = json::parse(line, nullptr, false);
		EXPECT_TRUE(object.is_object() ? object["sink"] == "a b" : line.ends_with(" info whole sink=\"a b\"")) << line;
	}
	EXPECT_EQ(count, 1500);
}

} // namespace
