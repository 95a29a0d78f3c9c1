// Templates and globs, plain and hostile.
#include <gtest/gtest.h>

#include <stdexcept>

#include "core/template.h"
#include "message.h"
#include "../../../test/unit/seed.h"

namespace {

using namespace relay;

Text
applied(std::string_view text, const Message &message = test::message(), Escape escape = Escape::none)
{
	return Template(text).apply(message, escape);
}

TEST(Template, Fields)
{
	EXPECT_EQ(applied("events.{event_type}"), "events.Order_Placed");
	EXPECT_EQ(applied("{queue}-{aggregate_type}-{aggregate_id}"), "orders-Order-17");
	EXPECT_EQ(applied("{outbox_id}"), "01900000-0000-7000-8000-000000000001");
	EXPECT_EQ(applied("{event_id}{idempotency_key}"), "4d47e190-0402-4048-bc2c-89dd54343cdckey");
	EXPECT_EQ(applied("{sequence_id}/{priority}/{attempt}"), "9/3/2");
	EXPECT_EQ(applied("{created_at}"), "2030-01-31T12:00:00.000001Z");
	EXPECT_EQ(applied("plain"), "plain");
	EXPECT_EQ(applied("{{{queue}}}"), "{orders}");
	EXPECT_EQ(applied("{{queue}}"), "{queue}");
}

TEST(Template, Alternatives)
{
	Message message = test::message();

	EXPECT_EQ(applied("{routing_key|partition_key}", message), "customer-4");
	EXPECT_EQ(applied("{routing_key|'it''s | } {'}", message), "it's | } {");
	EXPECT_EQ(applied("{routing_key}", message), Text{});
	EXPECT_EQ(applied("a.{routing_key}", message), Text{});
	message.routing_key = "";
	EXPECT_EQ(applied("{routing_key|content_type}", message), Text{});
	EXPECT_EQ(applied("{routing_key|queue}", message), "orders");
}

TEST(Template, Headers)
{
	Message message = test::message();

	message.headers = R"({"tenant": "a\"b", "n": 1.10, "o": {"x": [1, "}"]}, "empty": "", "a|b": 1})";
	EXPECT_EQ(applied("{header:tenant}", message), "a\"b");
	EXPECT_EQ(applied("{header:n}", message), "1.10");
	EXPECT_EQ(applied("{header:o}", message), R"({"x": [1, "}"]})");
	EXPECT_EQ(applied("{header:empty|header:none|'x'}", message), "x");
}

TEST(Template, Empty)
{
	EXPECT_TRUE(Template("").empty());
	EXPECT_TRUE(Template().empty());
	EXPECT_EQ(applied(""), "");
	EXPECT_TRUE(Template("a{{").constant());
	EXPECT_FALSE(Template("a{queue}").constant());
	EXPECT_EQ(Template("a{{b}}{queue}c").prefix(), "a{b}");
	EXPECT_EQ(Template("{queue}").source(), "{queue}");
}

TEST(Template, Refused)
{
	for (const char *text : {"{", "}", "{}", "{queue", "queue}", "{nobody}", "{queue|}", "{|queue}", "{''}", "{'a}",
							 "{'a'b}", "{queue{queue}}", "{header:}", "{ queue}", "{QUEUE}", "{'a", "{'", "{queue|"})
		EXPECT_THROW(Template{text}, std::invalid_argument) << text;
}

TEST(Template, Hostile)
{
	const size_t many = 1 << 20;
	std::string fields;

	EXPECT_THROW(Template(std::string(many + 1, '{')), std::invalid_argument);
	EXPECT_EQ(applied(std::string(many, '{')), std::string(many / 2, '{'));
	for (int i = 0; i < 10'000; i++)
		fields += "{queue}";
	EXPECT_EQ(applied(fields)->size(), 60'000);
	EXPECT_EQ(applied("{routing_key|'" + std::string(many, 'x') + "'}")->size(), many);
	EXPECT_EQ(applied(std::string_view("a\0{queue}", 9)), std::string("a\0orders", 8));
	EXPECT_EQ(applied("größe.{queue}"), "größe.orders");
	EXPECT_EQ(applied("\xff{queue}"), "\xfforders");
}

TEST(Template, Url)
{
	Message message = test::message();

	message.aggregate_id = "a/b?c=1#é";
	message.routing_key = "https://example.com/x?y=1";
	EXPECT_EQ(applied("https://h/{aggregate_id}", message, Escape::url), "https://h/a%2Fb%3Fc%3D1%23%C3%A9");
	EXPECT_EQ(applied("{routing_key}", message, Escape::url), "https://example.com/x?y=1");
	EXPECT_EQ(applied("{routing_key}&z={queue}", message, Escape::url), "https://example.com/x?y=1&z=orders");
	message.aggregate_id = "..";
	EXPECT_EQ(applied("https://h/{aggregate_id}/x", message, Escape::url), Text{});
	EXPECT_EQ(applied("{aggregate_id}", message), "..");
}

TEST(Glob, Matches)
{
	EXPECT_TRUE(glob("", ""));
	EXPECT_TRUE(glob("*", ""));
	EXPECT_TRUE(glob("*", "x"));
	EXPECT_TRUE(glob("order.*", "order.placed"));
	EXPECT_TRUE(glob("*.placed", "order.placed"));
	EXPECT_TRUE(glob("o*r.*c*d", "order.placed"));
	EXPECT_TRUE(glob("?rder", "order"));
	EXPECT_TRUE(glob("?", "é"));
	EXPECT_TRUE(glob("a*b*c", "abbbcbc"));
	EXPECT_FALSE(glob("", "x"));
	EXPECT_FALSE(glob("?", ""));
	EXPECT_FALSE(glob("??", "é"));
	EXPECT_FALSE(glob("order", "orders"));
	EXPECT_FALSE(glob("order.*", "order"));
	EXPECT_FALSE(glob("Order", "order"));
	EXPECT_FALSE(glob("[a-z]", "a"));
}

// A matcher that tries each star again would not end.
TEST(Glob, Time)
{
	std::string pattern;

	for (int i = 0; i < 200; i++)
		pattern += "*a";
	EXPECT_FALSE(glob(pattern + "b", std::string(10'000, 'a')));
	EXPECT_TRUE(glob(pattern + "*", std::string(10'000, 'a')));
}

bool
slow_glob(std::string_view pattern, std::string_view text)
{
	if (pattern.empty())
		return text.empty();
	if (pattern[0] == '*')
		return slow_glob(pattern.substr(1), text) || (!text.empty() && slow_glob(pattern, text.substr(1)));
	return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
		   slow_glob(pattern.substr(1), text.substr(1));
}

TEST(Glob, AgreesWithTheObviousOne)
{
	auto random = outbox::test::generator();
	const auto draw = [&](std::string_view letters) {
		std::string result;
		for (size_t i = random() % 8; i > 0; i--)
			result += letters[random() % letters.size()];
		return result;
	};

	for (int i = 0; i < 20'000; i++)
	{
		const std::string pattern = draw("ab*?"), text = draw("ab");
		EXPECT_EQ(glob(pattern, text), slow_glob(pattern, text)) << pattern << " " << text;
	}
}

} // namespace
