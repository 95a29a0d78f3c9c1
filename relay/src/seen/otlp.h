// Spans as OTLP's JSON.
//
// Guarantees: ids are hexadecimal and 64-bit numbers are strings, as OTLP's own mapping of protobuf to JSON has them.
// The attributes are those of OpenTelemetry's semantic conventions for messaging.
#pragma once

#include "seen/span.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace relay {

std::string otlp_request(const std::string &service, const std::vector<Span> &spans);

// How many spans of a request the collector says it did not take.
uint64_t otlp_rejected(std::string_view response);

} // namespace relay
