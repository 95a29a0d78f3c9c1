// Feeds any bytes to what reads texts that others wrote: the configuration, templates and globs, headers and mapping.
//
// Proves that nothing crashes, leaks or overflows (it is built with sanitizers), that a wrong configuration ends in a
// ConfigError, and that a mapping keeps its promises: the body holds the payload byte for byte, an envelope is valid
// JSON, and no header of HTTP or NATS has a control character or comes under a name of the relay's.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "../unit/kinds.h"
#include "../unit/message.h"
#include "core/json.h"
#include "core/secret.h"
#include "core/trace.h"
#include "expect.h"

namespace {

using namespace relay;

// Bytes, taken piece by piece.
class Input {
public:
	Input(const uint8_t *data, size_t size) : rest(reinterpret_cast<const char *>(data), size) {}

	size_t below(size_t end)
	{
		if (rest.empty())
			return 0;
		const size_t result = static_cast<unsigned char>(rest.front()) % end;
		rest.remove_prefix(1);
		return result;
	}

	// Up to the next newline.
	std::string line()
	{
		const size_t end = std::min(rest.find('\n'), rest.size());
		std::string result(rest.substr(0, end));
		rest.remove_prefix(std::min(end + 1, rest.size()));
		return result;
	}

	[[nodiscard]] std::string_view all() const { return rest; }

private:
	std::string_view rest;
};

void
fuzz_config(Input input)
try
{
	parse_config(input.all(), test::kinds(), test::missing());
}
catch (const ConfigError &)
{
}

void
fuzz_template(Input input)
try
{
	const std::string pattern = input.line();
	glob(pattern, input.line());
	parse_traceparent(input.line());
	const Template text(input.all());
	const Message message = test::message();
	expect(!text.constant() || text.apply(message), "a constant has a value");
	expect(text.apply(message, Escape::url).has_value() <= text.apply(message).has_value(), "a URL needs a value");
}
catch (const std::invalid_argument &)
{
}

// As jsonb prints it; the library takes a zero for the end, and passes over a byte order mark.
bool
is_json(const std::string &text)
{
	return text.find('\0') == std::string::npos && !text.starts_with("\xef\xbb\xbf") && nlohmann::json::accept(text);
}

void
check_delivery(const Route &route, Binding binding, const Delivery &delivery, const Message &message)
{
	const bool copies = route.body == Body::payload || route.body == Body::cloudevents_binary;
	const bool lines = binding == Binding::http || binding == Binding::nats;

	expect(!copies || delivery.body == *message.payload, "the body is the payload");
	if (!copies && is_json(*message.payload) && is_json(message.headers))
		expect(is_json(delivery.body), "the body is JSON");
	for (const auto &[name, value] : delivery.headers)
	{
		expect(!name.empty(), "headers have names");
		for (const std::string &text : {name, value})
			expect(!lines || text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
				   "headers have no line ends");
		expect(std::count_if(delivery.headers.begin(), delivery.headers.end(),
							 [&](const auto &one) { return one.first == "message_id"; }) == 1,
			   "our headers come once");
	}
}

void
fuzz_mapping(Input input)
{
	Route route;
	const auto binding = static_cast<Binding>(input.below(5));
	Message message = test::message();

	route.body = static_cast<Body>(input.below(4));
	message.event_type = input.line();
	message.aggregate_id = input.line();
	message.headers = input.line();
	message.payload = input.all();
	Delivery delivery{.message = message};
	if (!map(route, binding, delivery))
		check_delivery(route, binding, delivery, message);
	if (const auto members = json::members(message.headers))
		for (const json::Member &member : *members)
			json::plain(member.value);
}

} // namespace

extern "C" int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input input(data, size);

	switch (input.below(3))
	{
		case 0:
			fuzz_config(input);
			break;
		case 1:
			fuzz_template(input);
			break;
		default:
			fuzz_mapping(input);
	}
	return 0;
}
