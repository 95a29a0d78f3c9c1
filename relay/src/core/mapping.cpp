// From a message and its route to a delivery: destination, body, headers.
//
// Guarantees: the payload is never read, only moved, so that a sink sends byte for byte what PostgreSQL printed. What
// cannot be mapped is refused with a code, and changes nothing for other messages.
#include "core/mapping.h"

#include "core/fields.h"
#include "core/json.h"

#include <algorithm>
#include <utility>

namespace relay {

namespace mapping {

void
refuse(std::string_view code, std::string text)
{
	throw Failure{{std::string(code), std::move(text)}};
}

std::string
content_type_of(const Message &message)
{
	if (message.content_type && !message.content_type->empty())
		return *message.content_type;
	return message.payload ? "application/json" : "application/octet-stream";
}

std::string
payload_of(Message &message)
{
	if (message.payload)
		return std::exchange(*message.payload, {});
	if (message.payload_bytes)
		return std::exchange(*message.payload_bytes, {});
	refuse("PAYLOAD_NOT_EXPRESSIBLE", "the message has no payload");
}

bool
is_json(std::string_view content_type)
{
	std::string type(content_type.substr(0, content_type.find(';')));

	type.erase(type.find_last_not_of(" \t") + 1);
	std::transform(type.begin(), type.end(), type.begin(),
				   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; });
	return type.ends_with("/json") || type.ends_with("+json");
}

namespace {

std::string
destination(const Template &text, const Message &message, Escape escape, const char *what)
{
	Text value = text.apply(message, escape);

	if (!value)
		refuse("ILLEGAL_DESTINATION", std::string("\"") + text.source() + "\" yields no " + what + " for this message");
	if (value->find('\0') != std::string::npos)
		refuse("ILLEGAL_DESTINATION", std::string("the ") + what + " has a zero byte");
	return std::move(*value);
}

std::string
topic_of(const Route &route, Binding binding, const Message &message)
{
	const bool http = binding == Binding::http;

	if (!route.topic.empty())
		return destination(route.topic, message, http ? Escape::url : Escape::none, http ? "URL" : "topic");
	if (http)
		return {}; // the sink's own
	return route.debezium ? debezium_topic(message) : default_topic(message);
}

Text
key_of(const Route &route, const Message &message)
{
	if (route.key)
		return route.key->apply(message);
	if (route.debezium)
		return debezium_key(message);
	return message.partition_key ? message.partition_key : message.aggregate_id;
}

Destination
address(const Route &route, Binding binding, const Message &message)
{
	Destination to;

	to.topic = topic_of(route, binding, message);
	if (!route.exchange.empty())
		to.exchange = destination(route.exchange, message, Escape::none, "exchange");
	if (!route.method.empty())
		to.method = destination(route.method, message, Escape::none, "method");
	to.key = key_of(route, message);
	return to;
}

std::string
envelope(Message &message)
{
	json::Object result;

	for (const std::string_view name : field_names())
		if (name == "sequence_id" || name == "priority" || name == "attempt")
			result.raw(name, field_of(message, name).value_or("null"));
		else
			result.text(name, field_of(message, name));
	result.raw("headers", message.headers);
	if (message.payload)
		result.raw("payload", payload_of(message));
	else
		result.text("payload_base64", json::base64(payload_of(message)));
	return std::move(result).end();
}

void
make_body(const Route &route, Delivery &delivery)
{
	delivery.content_type = content_type_of(delivery.message);
	switch (route.body)
	{
		case Body::payload:
		case Body::cloudevents_binary:
			delivery.body = payload_of(delivery.message);
			break;
		case Body::envelope:
			delivery.body = envelope(delivery.message);
			delivery.content_type = "application/json";
			break;
		case Body::cloudevents_structured:
			delivery.body = cloudevents_body(route, delivery);
			delivery.content_type = "application/cloudevents+json";
			break;
	}
}

// header, field
constexpr std::pair<const char *, const char *> own[] = {
	{"message_id", "event_id"},       {"outbox_id", "outbox_id"},
	{"event_type", "event_type"},     {"aggregate_type", "aggregate_type"},
	{"aggregate_id", "aggregate_id"}, {"sequence_id", "sequence_id"},
	{"attempt", "attempt"},           {"created_at", "created_at"},
};
constexpr size_t usual_headers = std::size(own) + 4; // a few of the message's own

Headers
own_headers(const Route &route, Binding binding, const Delivery &delivery)
{
	Headers result;

	if (route.debezium)
		return debezium_headers(delivery.message);
	result.reserve(usual_headers);
	for (const auto &[header, field] : own)
		if (Text value = field_of(delivery.message, field))
			result.emplace_back(header, std::move(*value));
	if (route.body == Body::cloudevents_binary)
		for (auto &header : cloudevents_headers(route, binding, delivery))
			result.push_back(std::move(header));
	return result;
}

bool
among(Binding binding, const std::vector<std::string> &names, std::string_view name)
{
	return std::any_of(names.begin(), names.end(), [&](const auto &one) { return same_name(binding, one, name); });
}

// Those of the route, then those of the message that the route does not replace.
void
add_further_headers(const Route &route, Binding binding, Delivery &delivery)
{
	std::vector<std::string> replaced;

	for (const auto &[name, text] : route.headers)
	{
		replaced.push_back(name);
		if (Text value = text.apply(delivery.message))
			delivery.headers.emplace_back(name, std::move(*value));
	}
	if (delivery.message.headers == "{}")
		return;
	const auto members = json::members(delivery.message.headers);
	if (!members)
		refuse("ILLEGAL_HEADER", "the headers of the message are not a JSON object");
	const std::vector<std::string> ours = reserved_names(route, binding);
	for (const json::Member &member : *members)
	{
		if (among(binding, ours, member.name))
			refuse("ILLEGAL_HEADER", "header \"" + member.name + "\" would replace one of the relay's own");
		if (controls(binding, member.name))
			refuse("ILLEGAL_HEADER", "header \"" + member.name + "\" controls the protocol");
		if (!among(binding, replaced, member.name))
			delivery.headers.emplace_back(member.name, json::plain(member.value));
	}
}

} // namespace

std::vector<std::string>
reserved_names(const Route &route, Binding binding)
{
	std::vector<std::string> result;

	result.reserve(std::size(own) + 1);
	result.emplace_back("content-type");
	if (route.debezium)
		result.emplace_back("id");
	else
		for (const auto &[header, field] : own)
			result.emplace_back(header);
	if (route.body == Body::cloudevents_binary)
		for (std::string &name : cloudevents_names(binding))
			result.push_back(std::move(name));
	return result;
}

} // namespace mapping

std::optional<Refusal>
map(const Route &route, Binding binding, Delivery &delivery)
try
{
	delivery.to = mapping::address(route, binding, delivery.message);
	mapping::make_body(route, delivery);
	delivery.headers = mapping::own_headers(route, binding, delivery);
	mapping::add_further_headers(route, binding, delivery);
	for (const auto &[name, value] : delivery.headers)
		mapping::check_header(binding, name, value);
	mapping::check_header(binding, "content-type", delivery.content_type);
	return {};
}
catch (const mapping::Failure &failure)
{
	return failure.refusal;
}

} // namespace relay
