// The table of the sink nats has what the header of cnats has.
#include <gtest/gtest.h>

#include "header.h"

#if __has_include(<nats/nats.h>)

#include "sinks/nats_codes.h"

namespace {

using namespace relay;

constexpr const char *header = "/usr/include/nats/status.h";

TEST(NatsCodes, EveryStatusHasARow)
{
	Taxonomy table(nats::codes());
	auto names = test::names_in(header, R"(^\s+(NATS_\w+)(\s*=\s*[0-9]+)?,\s)");
	names.erase("NATS_OK");
	std::erase_if(names, [](const std::string &name) { return name.starts_with("NATS_CONN_STATUS_"); });
	EXPECT_GT(names.size(), 30u);
	for (const std::string &name : names)
		EXPECT_TRUE(table.known(name)) << name;
}

TEST(NatsCodes, EveryErrorOfJetStreamHasARow)
{
	Taxonomy table(nats::codes());
	auto names = test::names_in(header, R"(^\s+(JS\w+)\s*=\s*[0-9]+,)");
	EXPECT_GT(names.size(), 120u);
	for (const std::string &name : names)
		EXPECT_TRUE(table.known(name)) << name;
}

TEST(NatsCodes, NumbersHaveTheNamesOfTheHeader)
{
	EXPECT_EQ(nats::code_of(NATS_NO_RESPONDERS), "NATS_NO_RESPONDERS");
	EXPECT_EQ(nats::code_of_error(JSStreamMessageExceedsMaximumErr), "JSStreamMessageExceedsMaximumErr");
	EXPECT_EQ(nats::code_of_error(10'077), "JSStreamStoreFailedErr");
}

TEST(NatsCodes, WhatIsUnknownIsTriedAgain)
{
	Taxonomy table(nats::codes());
	EXPECT_EQ(nats::code_of_error(19'999), "JS_19999");
	EXPECT_FALSE(table.known("JS_19999"));
	EXPECT_EQ(table.of("JS_19999"), Fault::moment);
}

TEST(NatsCodes, Classes)
{
	Taxonomy table(nats::codes());
	EXPECT_EQ(table.of("NATS_MAX_PAYLOAD"), Fault::message);
	EXPECT_EQ(table.of("JSStreamMessageExceedsMaximumErr"), Fault::message);
	EXPECT_EQ(table.of("NATS_NO_RESPONDERS"), Fault::moment);
	EXPECT_EQ(table.of("JSStreamStoreFailedErr"), Fault::moment);
	EXPECT_EQ(table.of("NATS_NO_SERVER"), Fault::sink);
	EXPECT_EQ(table.of("NATS_CONNECTION_AUTH_FAILED"), Fault::sink);
}

TEST(NatsCodes, EachOnceAndWithAReason)
{
	std::set<std::string_view> seen;
	for (const Code &code : nats::codes())
	{
		EXPECT_TRUE(seen.insert(code.code).second) << code.code;
		EXPECT_FALSE(code.why.empty()) << code.code;
	}
}

} // namespace

#endif
