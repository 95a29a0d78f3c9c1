// Secrets, classes of codes, trace contexts.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "core/fields.h"
#include "core/secret.h"
#include "core/taxonomy.h"
#include "core/trace.h"

namespace {

using namespace relay;

TEST(Secret, IsRedactedEverywhere)
{
	const Secret secret("hunter2-core"), longer("hunter2-core-and-more");

	EXPECT_EQ(secret.reveal(), "hunter2-core");
	EXPECT_EQ(redact("a hunter2-core, hunter2-core"), "a ***, ***");
	EXPECT_EQ(redact("hunter2-core-and-more!"), "***!");
	EXPECT_EQ(redact("nothing"), "nothing");
	EXPECT_EQ(redact(""), "");
}

TEST(Secret, StaysRegistered)
{
	{
		const Secret gone("gone-for-good");
	}
	EXPECT_EQ(redact("gone-for-good"), "***");
}

TEST(Secret, PasswordOfAUri)
{
	const Secret uri("amqp://user:p%40ss-word@host:5672/%2f"), plain("https://example.com/a:b@c");

	EXPECT_EQ(redact("p%40ss-word p@ss-word"), "*** ***");
	EXPECT_EQ(redact("user host b@c"), "user host b@c");
}

TEST(Secret, EmptyAndShortOnesAreNot)
{
	const Secret empty(""), shorter("abc");

	EXPECT_TRUE(empty.empty());
	EXPECT_EQ(redact("abc"), "abc");
}

TEST(Secret, AnyThread)
{
	std::vector<std::thread> threads;

	for (int i = 0; i < 4; i++)
		threads.emplace_back([i] {
			for (int j = 0; j < 100; j++)
			{
				const std::string text = "thread-" + std::to_string(i) + "-" + std::to_string(j) + ";";
				const Secret secret(text);
				EXPECT_EQ(redact(text), "***");
			}
		});
	for (std::thread &thread : threads)
		thread.join();
}

constexpr Code table[] = {{"X_AWAY", Fault::sink, "why"}, {"X_BAD", Fault::message, "why"}};

TEST(Taxonomy, Classes)
{
	Taxonomy taxonomy(table);

	EXPECT_EQ(taxonomy.of("X_AWAY"), Fault::sink);
	EXPECT_EQ(taxonomy.of("X_BAD"), Fault::message);
	EXPECT_EQ(taxonomy.of("TIMEOUT"), Fault::moment);
	EXPECT_EQ(taxonomy.of("NO_ROUTE_CONFIGURED"), Fault::message);
	EXPECT_EQ(taxonomy.of("X_NEW"), Fault::moment);
	EXPECT_FALSE(taxonomy.known("X_NEW"));
	EXPECT_TRUE(taxonomy.change("X_BAD", Fault::moment));
	EXPECT_EQ(taxonomy.of("X_BAD"), Fault::moment);
	EXPECT_FALSE(taxonomy.change("X_NEW", Fault::sink));
	EXPECT_FALSE(taxonomy.known("X_NEW"));
}

TEST(Taxonomy, CommonCodesAreSaidOnce)
{
	std::set<std::string_view> seen;

	for (const Code &code : common_codes())
	{
		EXPECT_TRUE(seen.insert(code.code).second) << code.code;
		EXPECT_FALSE(code.why.empty()) << code.code;
	}
}

constexpr std::string_view example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Trace, Parses)
{
	const auto context = parse_traceparent(example);

	ASSERT_TRUE(context);
	EXPECT_EQ(context->trace_id_hex(), "4bf92f3577b34da6a3ce929d0e0e4736");
	EXPECT_EQ(context->span_id_hex(), "00f067aa0ba902b7");
	EXPECT_TRUE(context->sampled());
	EXPECT_EQ(context->traceparent(), example);
	EXPECT_FALSE(parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02")->sampled());
}

TEST(Trace, LaterVersions)
{
	const std::string rest(example.substr(2));

	EXPECT_EQ(parse_traceparent("cc" + rest)->traceparent(), example);
	EXPECT_TRUE(parse_traceparent("cc" + rest + "-what"));
	EXPECT_FALSE(parse_traceparent("cc" + rest + "what"));
	EXPECT_FALSE(parse_traceparent("00" + rest + "-what"));
	EXPECT_FALSE(parse_traceparent("ff" + rest));
}

TEST(Trace, Refused)
{
	for (size_t i = 0; i < example.size(); i++)
	{
		std::string text(example);
		EXPECT_FALSE(parse_traceparent(example.substr(0, i))) << i;
		text[i] = 'X';
		EXPECT_FALSE(parse_traceparent(text)) << text;
	}
	EXPECT_FALSE(parse_traceparent("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"));
	EXPECT_FALSE(parse_traceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
	EXPECT_FALSE(parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
}

TEST(Trace, Child)
{
	const TraceContext parent = *parse_traceparent(example);
	std::set<std::string> seen = {parent.span_id_hex()};

	for (int i = 0; i < 1000; i++)
	{
		const TraceContext child = parent.child();
		EXPECT_EQ(child.trace_id, parent.trace_id);
		EXPECT_EQ(child.flags, parent.flags);
		EXPECT_TRUE(seen.insert(child.span_id_hex()).second);
		EXPECT_TRUE(parse_traceparent(child.traceparent()));
	}
}

TEST(Fields, Times)
{
	using namespace std::chrono;
	EXPECT_EQ(rfc3339({}), "1970-01-01T00:00:00.000000Z");
	EXPECT_EQ(rfc3339(sys_time<microseconds>(microseconds(-1))), "1969-12-31T23:59:59.999999Z");
	EXPECT_EQ(rfc3339(sys_days{2024y / 2 / 29}), "2024-02-29T00:00:00.000000Z");
}

} // namespace
