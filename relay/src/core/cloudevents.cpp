// CloudEvents 1.0: attributes, the binary mode by the bindings of Kafka, HTTP, NATS and AMQP, and the structured mode
// by the JSON event format.
//
//	id				event_id
//	source			the route's, else outbox/QUEUE
//	type			event_type
//	subject			aggregate_id
//	time			created_at
//	partitionkey	the key of the delivery (the extension of that name), as Kafka's key mapping expects it
//	datacontenttype	the content type of the payload; in binary mode the content-type of the protocol
//	data			the payload; data_base64 if it is no JSON
#include "core/mapping.h"

#include "core/fields.h"
#include "core/json.h"

#include <array>

namespace relay::mapping {

namespace {

constexpr std::array names = {"specversion", "id",   "source",       "type",
							  "subject",     "time", "partitionkey", "datacontenttype"};

std::string_view
prefix(Binding binding)
{
	switch (binding)
	{
		case Binding::http:
		case Binding::nats:
			return "ce-";
		case Binding::amqp:
			return "cloudEvents:";
		case Binding::kafka:
		case Binding::plain:
			break;
	}
	return "ce_";
}

// C0, DEL and C1 in UTF-8, which the type system of CloudEvents excludes.
bool
has_control(std::string_view text)
{
	for (size_t i = 0; i < text.size(); i++)
	{
		const auto c = static_cast<unsigned char>(text[i]);
		const bool c1 = c == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
		if (c < 0x20 || c == 0x7f || c1)
			return true;
	}
	return false;
}

std::string
source_of(const Route &route, const Message &message)
{
	if (route.source.empty())
		return "outbox/" + percent_encoded(message.queue);
	return route.source.apply(message).value_or("");
}

// All but datacontenttype, in the order of the table above.
Headers
attributes(const Route &route, const Delivery &delivery)
{
	const Message &message = delivery.message;
	Headers result = {{"specversion", "1.0"},
					  {"id", message.event_id},
					  {"source", source_of(route, message)},
					  {"type", message.event_type}};
	const auto optional = [&](const char *name, const Text &value) {
		if (value && !value->empty())
			result.emplace_back(name, *value);
	};

	optional("subject", message.aggregate_id);
	optional("time", rfc3339(message.created_at));
	optional("partitionkey", delivery.to.key);
	for (const auto &[name, value] : result)
		if (value.empty() || has_control(value))
			refuse("ILLEGAL_ATTRIBUTE",
				   "the attribute " + name + (value.empty() ? " is empty" : " has a control character"));
	return result;
}

// Headers of HTTP and NATS: space, quote, percent and all that is not printable ASCII as %XX.
std::string
header_value(Binding binding, const std::string &value)
{
	std::string result;

	if (binding != Binding::http && binding != Binding::nats)
		return value;
	for (const char c : value)
		if (c > ' ' && c <= '~' && c != '"' && c != '%')
			result += c;
		else
			result += percent_encoded({&c, 1});
	return result;
}

} // namespace

Headers
cloudevents_headers(const Route &route, Binding binding, const Delivery &delivery)
{
	Headers result;

	for (const auto &[name, value] : attributes(route, delivery))
		result.emplace_back(std::string(prefix(binding)) + name, header_value(binding, value));
	if (binding == Binding::nats) // whose binding has no content type but this
		result.emplace_back("ce-datacontenttype", header_value(binding, delivery.content_type));
	return result;
}

std::vector<std::string>
cloudevents_names(Binding binding)
{
	std::vector<std::string> result;

	for (const char *name : names)
		result.push_back(std::string(prefix(binding)) + name);
	return result;
}

std::string
cloudevents_body(const Route &route, Delivery &delivery)
{
	Message &message = delivery.message;
	const std::string type = content_type_of(message);
	json::Object event;

	for (const auto &[name, value] : attributes(route, delivery))
		event.text(name, value);
	event.text("datacontenttype", type);
	if (message.payload && is_json(type))
		event.raw("data", payload_of(message));
	else
		event.text("data_base64", json::base64(payload_of(message)));
	return std::move(event).end();
}

} // namespace relay::mapping
