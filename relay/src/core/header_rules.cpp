// Which names and values of headers a protocol can carry, and which of them control it.
//
// Guarantees: no text of a message ends a header line, begins another one, or steers the broker: the producer of
// a message cannot purge a stream, copy to other queues or smuggle a request.
#include "core/mapping.h"

#include <algorithm>
#include <array>

namespace relay::mapping {

namespace {

char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

bool
same_without_case(std::string_view left, std::string_view right)
{
	return std::equal(left.begin(), left.end(), right.begin(), right.end(),
					  [](char a, char b) { return lower(a) == lower(b); });
}

bool
lines(Binding binding)
{
	return binding == Binding::http || binding == Binding::nats;
}

// RFC 9110
bool
is_token(std::string_view name)
{
	constexpr std::string_view marks = "!#$%&'*+-.^_`|~";

	return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
		return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') || marks.find(c) != marks.npos;
	});
}

// A tab is the only control character that is allowed.
bool
is_line(std::string_view value)
{
	return std::all_of(value.begin(), value.end(), [](char c) {
		const auto byte = static_cast<unsigned char>(c);
		return (byte >= 0x20 && byte != 0x7f) || c == '\t';
	});
}

// What frames a request, belongs to a hop, or is the sink's own.
constexpr std::array http_controls = {"connection",
									  "content-encoding",
									  "content-length",
									  "expect",
									  "host",
									  "idempotency-key",
									  "keep-alive",
									  "proxy-authenticate",
									  "proxy-authorization",
									  "proxy-connection",
									  "te",
									  "trailer",
									  "transfer-encoding",
									  "upgrade",
									  "webhook-id",
									  "webhook-signature",
									  "webhook-timestamp"};

} // namespace

bool
same_name(Binding binding, std::string_view left, std::string_view right)
{
	return lines(binding) ? same_without_case(left, right) : left == right;
}

bool
controls(Binding binding, std::string_view name)
{
	switch (binding)
	{
		case Binding::http:
			return std::any_of(http_controls.begin(), http_controls.end(),
							   [&](const char *one) { return same_without_case(one, name); });
		case Binding::nats: // Nats-Rollup purges, Nats-Expected-... refuses
			return name.size() >= 5 && same_without_case(name.substr(0, 5), "nats-");
		case Binding::amqp: // further routing keys; RabbitMQ closes the channel if they are no array
			return name == "CC" || name == "BCC";
		case Binding::kafka:
		case Binding::plain:
			break;
	}
	return false;
}

void
check_header(Binding binding, const std::string &name, const std::string &value)
{
	constexpr size_t amqp_longest = 255;

	if (lines(binding) && !is_token(name))
		refuse("ILLEGAL_HEADER", "the name of header \"" + name + "\" is not a token");
	if (lines(binding) && !is_line(value))
		refuse("ILLEGAL_HEADER", "the value of header \"" + name + "\" has a control character");
	if (name.empty())
		refuse("ILLEGAL_HEADER", "a header has an empty name");
	if (binding == Binding::amqp && name.size() > amqp_longest)
		refuse("ILLEGAL_HEADER", "the name of header \"" + name + "\" is longer than 255 bytes");
}

} // namespace relay::mapping
