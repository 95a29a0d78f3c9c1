// The fields of a message by name, as templates, globs and the configuration write them.
#pragma once

#include "core/message.h"

#include <span>
#include <string>
#include <string_view>

namespace relay {

// All but header:NAME.
std::span<const std::string_view> field_names();

// Of a field or of header:NAME; nothing if the message does not have it, or it is empty.
Text field_of(const Message &message, std::string_view name);

// A header of the message: a string as it is, another value as JSON; nothing if there is none.
Text header_of(const Message &message, std::string_view name);

// The header schema_version, 1 without it; nothing if it is no number.
std::optional<int> schema_version_of(const Message &message);

// 2030-01-31T12:00:00.000000Z
std::string rfc3339(std::chrono::sys_time<std::chrono::microseconds> time);

// Each byte but letters, digits and - . _ ~ as %XX.
std::string percent_encoded(std::string_view text);

} // namespace relay
