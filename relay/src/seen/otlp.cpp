// Spans as OTLP's JSON.
#include "seen/otlp.h"
#include "core/secret.h"

#include <charconv>

#include <nlohmann/json.hpp>

namespace relay {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kind_producer = 4, status_error = 2;
// The lowest byte of a span's flags is W3C's; these say that the parent is known to be in another process.
constexpr uint32_t remote_parent = 0x300;

std::string
nanoseconds(std::chrono::system_clock::time_point at)
{
	return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

Json
text_attribute(std::string_view key, std::string_view value)
{
	return {{"key", key}, {"value", {{"stringValue", redact(value)}}}};
}

Json
number_attribute(std::string_view key, uint64_t value)
{
	return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

// Without the query of a URL, which may hold a token, and which differs with each message.
std::string
destination(const Span &span)
{
	return span.system == "http" ? span.destination.substr(0, span.destination.find_first_of("?#")) : span.destination;
}

Json
attributes(const Span &span)
{
	Json result = Json::array();
	const auto add = [&result](std::string_view key, std::string_view value) {
		if (!value.empty())
		{
			result.push_back(text_attribute(key, value));
		}
	};

	add("messaging.system", span.system);
	add("messaging.operation.name", "publish");
	add("messaging.operation.type", "send");
	add("messaging.destination.name", destination(span));
	add("messaging.message.id", span.event_id);
	result.push_back(number_attribute("messaging.message.body.size", span.body_size));
	add(span.system == "kafka" ? "messaging.kafka.message.key" : "outbox.key", span.key);
	add("messaging.rabbitmq.destination.routing_key", span.routing_key);
	add("server.address", span.server_address);
	if (span.server_port > 0)
	{
		result.push_back(number_attribute("server.port", static_cast<uint64_t>(span.server_port)));
	}
	add("outbox.id", span.outbox_id);
	add("outbox.queue", span.queue);
	add("error.type", span.error);
	return result;
}

Json
span_json(const Span &span)
{
	Json result{{"traceId", span.context.trace_id_hex()},
				{"spanId", span.context.span_id_hex()},
				{"parentSpanId", span.parent.span_id_hex()},
				{"flags", remote_parent | span.context.flags},
				{"name", redact("publish " + destination(span))},
				{"kind", kind_producer},
				{"startTimeUnixNano", nanoseconds(span.began)},
				{"endTimeUnixNano", nanoseconds(span.ended)},
				{"attributes", attributes(span)},
				{"links", Json::array({{{"traceId", span.parent.trace_id_hex()},
										{"spanId", span.parent.span_id_hex()},
										{"flags", remote_parent | span.parent.flags}}})}};

	if (!span.error.empty())
	{
		result["status"] = {{"code", status_error}, {"message", redact(span.error)}};
	}
	return result;
}

} // namespace

std::string
otlp_request(const std::string &service, const std::vector<Span> &spans)
{
	Json list = Json::array();

	for (const auto &span : spans)
	{
		list.push_back(span_json(span));
	}
	const Json scope{{"scope", {{"name", "outbox-relay"}}}, {"spans", std::move(list)}};
	const Json resource{{"resource", {{"attributes", Json::array({text_attribute("service.name", service)})}}},
						{"scopeSpans", Json::array({scope})}};

	return Json{{"resourceSpans", Json::array({resource})}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

uint64_t
otlp_rejected(std::string_view response)
{
	const auto parsed = Json::parse(response, nullptr, false);
	const auto *partial = parsed.is_object() && parsed.contains("partialSuccess") ? &parsed["partialSuccess"] : nullptr;
	uint64_t rejected = 0;

	if (partial && partial->is_object() && partial->contains("rejectedSpans"))
	{
		const auto &value = (*partial)["rejectedSpans"];
		const auto text = value.is_string() ? value.get<std::string>() : value.dump();
		std::from_chars(text.data(), text.data() + text.size(), rejected);
	}
	return rejected;
}

} // namespace relay
