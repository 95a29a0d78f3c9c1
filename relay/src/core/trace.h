// W3C Trace Context: the headers traceparent and tracestate.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace relay {

struct TraceContext {
	std::array<uint8_t, 16> trace_id{};
	std::array<uint8_t, 8> span_id{};
	uint8_t flags = 0;

	[[nodiscard]] bool sampled() const { return (flags & 1) != 0; }
	[[nodiscard]] std::string traceparent() const;
	[[nodiscard]] std::string trace_id_hex() const;
	[[nodiscard]] std::string span_id_hex() const;
	// The same trace under a new span id.
	[[nodiscard]] TraceContext child() const;
	bool operator==(const TraceContext &) const = default;
};

// Nothing if it is not valid; a version above 00 is read as 00.
std::optional<TraceContext> parse_traceparent(std::string_view header);

} // namespace relay
