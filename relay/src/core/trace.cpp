// See trace.h.
#include "core/trace.h"

#include <algorithm>

#include <openssl/rand.h>

namespace relay {

namespace {

constexpr std::string_view digits = "0123456789abcdef";

template <size_t n>
std::string
to_hex(const std::array<uint8_t, n> &bytes)
{
	std::string result;

	for (const uint8_t byte : bytes)
	{
		result += digits[byte >> 4];
		result += digits[byte & 15];
	}
	return result;
}

// Lower case only, as the standard demands.
template <size_t n>
bool
from_hex(std::string_view text, std::array<uint8_t, n> &bytes)
{
	for (size_t i = 0; i < n; i++)
	{
		const size_t high = digits.find(text[2 * i]), low = digits.find(text[2 * i + 1]);
		if (high == std::string_view::npos || low == std::string_view::npos)
			return false;
		bytes[i] = static_cast<uint8_t>(high * 16 + low);
	}
	return true;
}

template <size_t n>
bool
zero(const std::array<uint8_t, n> &bytes)
{
	return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

} // namespace

std::string
TraceContext::traceparent() const
{
	return "00-" + trace_id_hex() + "-" + span_id_hex() + "-" + to_hex(std::array<uint8_t, 1>{flags});
}

std::string
TraceContext::trace_id_hex() const
{
	return to_hex(trace_id);
}

std::string
TraceContext::span_id_hex() const
{
	return to_hex(span_id);
}

TraceContext
TraceContext::child() const
{
	TraceContext result = *this;

	// Should OpenSSL have no random numbers, the parent's id stays: a wrong link, and no reason to stop.
	do
		if (RAND_bytes(result.span_id.data(), static_cast<int>(result.span_id.size())) != 1)
			result.span_id = span_id;
	while (zero(result.span_id) && !zero(span_id));
	return result;
}

std::optional<TraceContext>
parse_traceparent(std::string_view header)
{
	// version 2, trace id 32, span id 16 and flags 2 digits, with dashes between them
	constexpr size_t length = 55;
	std::array<uint8_t, 1> version{}, flags{};
	TraceContext result;

	if (header.size() < length || header[2] != '-' || header[35] != '-' || header[52] != '-')
		return {};
	if (!from_hex(header.substr(0, 2), version) || !from_hex(header.substr(3, 32), result.trace_id) ||
		!from_hex(header.substr(36, 16), result.span_id) || !from_hex(header.substr(53, 2), flags))
		return {};
	if (version[0] == 0xff || zero(result.trace_id) || zero(result.span_id))
		return {};
	// A later version may go on after a dash.
	if (header.size() > length && (version[0] == 0 || header[length] != '-'))
		return {};
	result.flags = flags[0];
	return result;
}

} // namespace relay
