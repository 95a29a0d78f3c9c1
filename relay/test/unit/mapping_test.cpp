// From a message to a delivery: destinations, bodies, headers, in each binding.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "core/route.h"
#include "message.h"

namespace {

using namespace relay;
using nlohmann::json;

constexpr Binding bindings[] = {Binding::kafka, Binding::amqp, Binding::nats, Binding::http, Binding::plain};

Delivery
mapped(const Route &route, Binding binding, Message message = test::message())
{
	Delivery delivery{.message = std::move(message)};

	if (const auto refusal = map(route, binding, delivery))
		ADD_FAILURE() << refusal->code << ": " << refusal->text;
	return delivery;
}

std::string
refused(const Route &route, Binding binding, Message message)
{
	Delivery delivery{.message = std::move(message)};
	const auto refusal = map(route, binding, delivery);

	return refusal ? refusal->code : "";
}

std::map<std::string, std::string>
headers(const Delivery &delivery)
{
	std::map<std::string, std::string> result(delivery.headers.begin(), delivery.headers.end());

	EXPECT_EQ(result.size(), delivery.headers.size()) << "a header comes twice";
	return result;
}

Message
with_headers(std::string text)
{
	Message message = test::message();

	message.headers = std::move(text);
	return message;
}

Message
binary()
{
	Message message = test::message();

	message.payload.reset();
	message.payload_bytes = std::string("\0\xff\n", 3);
	message.content_type = "application/x-protobuf";
	return message;
}

const std::map<std::string, std::string> own = {
	{"message_id", "4d47e190-0402-4048-bc2c-89dd54343cdc"},
	{"outbox_id", "01900000-0000-7000-8000-000000000001"},
	{"event_type", "Order_Placed"},
	{"aggregate_type", "Order"},
	{"aggregate_id", "17"},
	{"sequence_id", "9"},
	{"attempt", "2"},
	{"created_at", "2030-01-31T12:00:00.000001Z"},
};

// Without our own.
std::map<std::string, std::string>
further(const Delivery &delivery)
{
	auto result = headers(delivery);

	for (const auto &[name, value] : own)
	{
		EXPECT_EQ(result[name], value) << name;
		result.erase(name);
	}
	return result;
}

TEST(Destination, Defaults)
{
	Message message = test::message();

	EXPECT_EQ(default_topic(message), "events.order.placed");
	EXPECT_EQ(mapped({}, Binding::kafka, message).to.topic, "events.order.placed");
	EXPECT_EQ(mapped({}, Binding::kafka, message).to.key, "customer-4");
	EXPECT_EQ(mapped({}, Binding::http, message).to.topic, "");
	message.routing_key = "a.b";
	message.partition_key.reset();
	EXPECT_EQ(mapped({}, Binding::nats, message).to.topic, "a.b");
	EXPECT_EQ(mapped({}, Binding::nats, message).to.key, "17");
	message.aggregate_id.reset();
	EXPECT_EQ(mapped({}, Binding::kafka, message).to.key, Text{});
	message.routing_key = "";
	EXPECT_EQ(default_topic(message), "events.order.placed");
}

TEST(Destination, Templates)
{
	Route route;

	route.topic = Template("{queue}.{event_type}");
	route.exchange = Template("{aggregate_type}");
	route.method = Template("PUT");
	route.key = Template("{aggregate_id}");
	const Destination to = mapped(route, Binding::amqp).to;
	EXPECT_EQ(to.topic, "orders.Order_Placed");
	EXPECT_EQ(to.exchange, "Order");
	EXPECT_EQ(to.method, "PUT");
	EXPECT_EQ(to.key, "17");
	route.key = Template("{routing_key}");
	EXPECT_EQ(mapped(route, Binding::kafka).to.key, Text{});
}

TEST(Destination, Refused)
{
	Route topic, exchange;

	topic.topic = Template("{routing_key}");
	exchange.exchange = Template("{routing_key}");
	EXPECT_EQ(refused(topic, Binding::kafka, test::message()), "ILLEGAL_DESTINATION");
	EXPECT_EQ(refused(exchange, Binding::amqp, test::message()), "ILLEGAL_DESTINATION");
}

TEST(Body, PayloadIsLeftAlone)
{
	const std::string text = *test::message().payload;

	for (const Binding binding : bindings)
	{
		const Delivery delivery = mapped({}, binding);
		EXPECT_EQ(delivery.body, text);
		EXPECT_EQ(delivery.content_type, "application/json");
		EXPECT_TRUE(delivery.message.payload);
		EXPECT_TRUE(further(delivery).empty());
		const Delivery bytes = mapped({}, binding, binary());
		EXPECT_EQ(bytes.body, std::string("\0\xff\n", 3));
		EXPECT_EQ(bytes.content_type, "application/x-protobuf");
		EXPECT_FALSE(bytes.message.payload);
	}
	Message plain = binary();
	plain.content_type.reset();
	EXPECT_EQ(mapped({}, Binding::kafka, plain).content_type, "application/octet-stream");
	plain.payload_bytes.reset();
	EXPECT_EQ(refused({}, Binding::kafka, plain), "PAYLOAD_NOT_EXPRESSIBLE");
}

TEST(Body, Envelope)
{
	Route route;
	Message message = with_headers(R"({"a": 1.10})");

	route.body = Body::envelope;
	message.payload = R"({"n": 12345678901234567890.10})";
	const Delivery delivery = mapped(route, Binding::kafka, message);
	EXPECT_EQ(
		delivery.body,
		R"({"outbox_id":"01900000-0000-7000-8000-000000000001","queue":"orders",)"
		R"("event_id":"4d47e190-0402-4048-bc2c-89dd54343cdc","event_type":"Order_Placed","aggregate_type":"Order",)"
		R"("aggregate_id":"17","partition_key":"customer-4","idempotency_key":"key","routing_key":null,"sequence_id":9,)"
		R"("priority":3,"attempt":2,"content_type":null,"created_at":"2030-01-31T12:00:00.000001Z",)"
		R"("headers":{"a": 1.10},"payload":{"n": 12345678901234567890.10}})");
	EXPECT_EQ(delivery.content_type, "application/json");

	const json bytes = json::parse(mapped(route, Binding::http, binary()).body);
	EXPECT_EQ(bytes["payload_base64"], "AP8K");
	EXPECT_EQ(bytes["content_type"], "application/x-protobuf");
	EXPECT_FALSE(bytes.contains("payload"));

	message.event_type = "a\"\n\xff";
	EXPECT_EQ(json::parse(mapped(route, Binding::kafka, message).body)["event_type"], "a\"\n\ufffd");
}

TEST(CloudEvents, Binary)
{
	Route route;
	const std::pair<Binding, std::string> prefixes[] = {{Binding::kafka, "ce_"},
														{Binding::amqp, "cloudEvents:"},
														{Binding::nats, "ce-"},
														{Binding::http, "ce-"},
														{Binding::plain, "ce_"}};

	route.body = Body::cloudevents_binary;
	for (const auto &[binding, prefix] : prefixes)
	{
		const Delivery delivery = mapped(route, binding);
		std::map<std::string, std::string> expected = {
			{prefix + "specversion", "1.0"},
			{prefix + "id", "4d47e190-0402-4048-bc2c-89dd54343cdc"},
			{prefix + "source", "outbox/orders"},
			{prefix + "type", "Order_Placed"},
			{prefix + "subject", "17"},
			{prefix + "time", "2030-01-31T12:00:00.000001Z"},
			{prefix + "partitionkey", "customer-4"},
		};
		if (binding == Binding::nats)
			expected["ce-datacontenttype"] = "application/json";
		EXPECT_EQ(further(delivery), expected);
		EXPECT_EQ(delivery.body, *test::message().payload);
		EXPECT_EQ(delivery.content_type, "application/json");
		EXPECT_EQ(mapped(route, binding, binary()).body, *binary().payload_bytes);
	}
}

TEST(CloudEvents, PercentEncoding)
{
	Route route;
	Message message = test::message();

	route.body = Body::cloudevents_binary;
	route.source = Template("urn:{queue}");
	message.event_type = "Euro € \"100%\"";
	message.aggregate_id.reset();
	message.partition_key.reset();
	for (const Binding binding : {Binding::http, Binding::nats})
	{
		auto result = headers(mapped(route, binding, message));
		EXPECT_EQ(result["ce-type"], "Euro%20%E2%82%AC%20%22100%25%22");
		EXPECT_EQ(result["ce-source"], "urn:orders");
		EXPECT_EQ(result.count("ce-subject"), 0);
		EXPECT_EQ(result.count("ce-partitionkey"), 0);
	}
	EXPECT_EQ(headers(mapped(route, Binding::kafka, message))["ce_type"], message.event_type);
	message.queue = "a b/ü";
	route.source = {};
	EXPECT_EQ(headers(mapped(route, Binding::amqp, message))["cloudEvents:source"], "outbox/a%20b%2F%C3%BC");
}

TEST(CloudEvents, Structured)
{
	Route route;
	Message message = test::message();

	route.body = Body::cloudevents_structured;
	for (const Binding binding : bindings)
	{
		const Delivery delivery = mapped(route, binding);
		EXPECT_EQ(delivery.content_type, "application/cloudevents+json");
		EXPECT_EQ(delivery.body,
				  R"({"specversion":"1.0","id":"4d47e190-0402-4048-bc2c-89dd54343cdc","source":"outbox/orders",)"
				  R"("type":"Order_Placed","subject":"17","time":"2030-01-31T12:00:00.000001Z",)"
				  R"("partitionkey":"customer-4","datacontenttype":"application/json","data":)" +
					  *message.payload + "}");
		EXPECT_TRUE(further(delivery).empty());
	}
	message.content_type = "Application/vnd.acme+JSON; charset=utf-8";
	EXPECT_NE(mapped(route, Binding::http, message).body.find("\"data\":{"), std::string::npos);
	message.content_type = "text/plain";
	message.payload = "\"x\"";
	EXPECT_EQ(json::parse(mapped(route, Binding::http, message).body)["data_base64"], "Ingi");
	const json bytes = json::parse(mapped(route, Binding::kafka, binary()).body);
	EXPECT_EQ(bytes["data_base64"], "AP8K");
	EXPECT_EQ(bytes["datacontenttype"], "application/x-protobuf");
}

TEST(CloudEvents, IllegalAttributes)
{
	for (const Body body : {Body::cloudevents_binary, Body::cloudevents_structured})
		for (const std::string text : {"a\nb", "a\x7f", "a\u0085", ""})
		{
			Route route;
			Message message = test::message();
			route.body = body;
			message.event_type = text;
			EXPECT_EQ(refused(route, Binding::kafka, message), "ILLEGAL_ATTRIBUTE") << text;
		}
}

TEST(Debezium, Preset)
{
	Route route;
	Message message = with_headers(R"({"tenant": "a", "event_type": "mine"})");
	const std::map<std::string, std::string> expected = {
		{"id", "4d47e190-0402-4048-bc2c-89dd54343cdc"}, {"tenant", "a"}, {"event_type", "mine"}};

	route.debezium = true;
	const Delivery delivery = mapped(route, Binding::kafka, message);
	EXPECT_EQ(delivery.to.topic, "outbox.event.Order");
	EXPECT_EQ(delivery.to.key, "17");
	EXPECT_EQ(headers(delivery), expected);
	EXPECT_EQ(delivery.body, *test::message().payload);
	message.headers = R"({"id": "other"})";
	EXPECT_EQ(refused(route, Binding::kafka, message), "ILLEGAL_HEADER");
	message = test::message();
	message.aggregate_type.reset();
	EXPECT_EQ(refused(route, Binding::kafka, message), "ILLEGAL_DESTINATION");
	route.topic = Template("t");
	EXPECT_EQ(mapped(route, Binding::kafka, message).to.topic, "t");
}

TEST(Header, OfTheMessage)
{
	const std::map<std::string, std::string> expected = {
		{"s", "a \"b\" é"}, {"n", "1.10"}, {"big", "123456789012345678901234"}, {"o", R"({"x": [1, "}"]})"},
		{"t", "true"},      {"z", "null"}, {"traceparent", "00-1-2-01"}};

	for (const Binding binding : bindings)
		EXPECT_EQ(
			further(mapped(
				{}, binding,
				with_headers(
					R"({"s": "a \"b\" \u00e9", "n": 1.10, "big": 123456789012345678901234, "o": {"x": [1, "}"]}, "t": true,)"
					R"( "z": null, "traceparent": "00-1-2-01"})"))),
			expected);
}

TEST(Header, OfTheRoute)
{
	Route route;
	const std::map<std::string, std::string> expected = {{"Tenant", "orders"}, {"other", "1"}};

	route.headers = {{"Tenant", Template("{queue}")}, {"none", Template("{routing_key}")}};
	EXPECT_EQ(further(mapped(route, Binding::http, with_headers(R"({"tenant": "x", "other": 1})"))), expected);
}

TEST(Header, Reserved)
{
	Route cloudevents;

	cloudevents.body = Body::cloudevents_binary;
	for (const Binding binding : bindings)
	{
		const bool any_case = binding == Binding::http || binding == Binding::nats;
		for (const auto &[name, value] : own)
			EXPECT_EQ(refused({}, binding, with_headers("{\"" + name + "\": 1}")), "ILLEGAL_HEADER") << name;
		EXPECT_EQ(refused({}, binding, with_headers(R"({"content-type": "x"})")), "ILLEGAL_HEADER");
		EXPECT_EQ(refused({}, binding, with_headers(R"({"Event_Type": "x"})")), any_case ? "ILLEGAL_HEADER" : "");
		EXPECT_EQ(refused({}, binding, with_headers(R"({"Content-Type": "x"})")), any_case ? "ILLEGAL_HEADER" : "");
	}
	// Also without a value of ours, which the receiver would take for it.
	Message message = with_headers(R"({"sequence_id": 1})");
	message.sequence_id.reset();
	EXPECT_EQ(refused({}, Binding::kafka, message), "ILLEGAL_HEADER");
	EXPECT_EQ(refused(cloudevents, Binding::kafka, with_headers(R"({"ce_id": 1})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused(cloudevents, Binding::http, with_headers(R"({"CE-Subject": 1})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused(cloudevents, Binding::amqp, with_headers(R"({"cloudEvents:type": 1})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused(cloudevents, Binding::kafka, with_headers(R"({"ce_mine": 1})")), "");
	EXPECT_EQ(refused({}, Binding::kafka, with_headers(R"({"ce_id": 1})")), "");
}

TEST(Header, Legal)
{
	for (const Binding binding : bindings)
	{
		const std::string lines = binding == Binding::http || binding == Binding::nats ? "ILLEGAL_HEADER" : "";
		for (const char *text : {R"({"a b": 1})", R"({"a:b": 1})", R"({"é": 1})", R"({"a\r\nb": 1})",
								 R"({"a": "x\ny"})", R"({"a": "x\r\nEvil: 1"})", R"({"a": "\u007f"})"})
			EXPECT_EQ(refused({}, binding, with_headers(text)), lines) << text;
		EXPECT_EQ(refused({}, binding, with_headers(R"({"": 1})")), "ILLEGAL_HEADER");
		EXPECT_EQ(refused({}, binding, with_headers(R"({"a": "é\t"})")), "");
		Message message = test::message();
		message.aggregate_id = "x\r\nEvil: 1";
		EXPECT_EQ(refused({}, binding, message), lines);
		message = test::message();
		message.content_type = "text/plain\r\nEvil: 1";
		EXPECT_EQ(refused({}, binding, message), lines);
		for (const char *text :
			 {"", "[]", "{", R"({"a")", R"({"a":)", R"({"a": 1)", R"({"a": "x})", R"({"a" 1})", R"({"a":})",
			  R"({a: 1})", R"({"a": 1, })", "null", R"({"a": 1])", R"({} x)", R"({"a": 1} x)"})
			EXPECT_EQ(refused({}, binding, with_headers(text)), "ILLEGAL_HEADER") << text;
	}
	EXPECT_EQ(refused({}, Binding::amqp, with_headers("{\"" + std::string(256, 'a') + "\": 1}")), "ILLEGAL_HEADER");
}

TEST(Header, ThatControl)
{
	EXPECT_EQ(refused({}, Binding::nats, with_headers(R"({"nats-Rollup": "all"})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused({}, Binding::http, with_headers(R"({"Transfer-Encoding": "chunked"})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused({}, Binding::http, with_headers(R"({"webhook-signature": "v1,x"})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused({}, Binding::amqp, with_headers(R"({"CC": "x"})")), "ILLEGAL_HEADER");
	EXPECT_EQ(refused({}, Binding::kafka, with_headers(R"({"CC": "x", "Host": "y", "Nats-Rollup": "z"})")), "");
}

TEST(Routes, FirstMatchWins)
{
	Route orders, by_type, by_header, rest;
	Message message = with_headers(R"({"tenant": "acme-1", "n": 5})");

	orders.sink = "a";
	orders.match.queue = "orders";
	orders.match.aggregate_type = "Order";
	by_type.sink = "b";
	by_type.match.event_type = "order*";
	by_header.sink = "c";
	by_header.match.headers = {{"tenant", "acme-*"}, {"n", "5"}};
	rest.sink = "d";
	const Routes routes({orders, by_type, by_header, rest});

	EXPECT_EQ(routes.of(message)->sink, "a");
	message.aggregate_type.reset();
	EXPECT_EQ(routes.of(message)->sink, "c");
	message.event_type = "order.placed";
	EXPECT_EQ(routes.of(message)->sink, "b");
	message.event_type = "x";
	message.headers = R"({"tenant": "acme-1"})";
	EXPECT_EQ(routes.of(message)->sink, "d");
	EXPECT_EQ(Routes({orders, by_type}).of(message), nullptr);
	EXPECT_EQ(routes.sinks_of("orders"), (std::vector<std::string>{"a", "b", "c", "d"}));
	EXPECT_EQ(routes.sinks_of("mail"), (std::vector<std::string>{"b", "c", "d"}));
}

TEST(Routes, ThatTakeAllOfAQueueEndTheList)
{
	Route orders, rest;

	orders.sink = "a";
	orders.match.queue = "ord*";
	rest.sink = "b";
	EXPECT_EQ(Routes({orders, rest}).sinks_of("orders"), std::vector<std::string>{"a"});
	EXPECT_EQ(Routes({orders, rest}).sinks_of("mail"), std::vector<std::string>{"b"});
}

} // namespace
