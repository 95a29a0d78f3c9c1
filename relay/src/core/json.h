// JSON as PostgreSQL printed it, taken apart and put together without parsing its values.
//
// Guarantees: a value is passed on byte for byte. A parser that makes numbers of numbers would change
// 1.10 and 12345678901234567890123, and fail at 1e400, all of which jsonb can hold; so values are cut out and
// spliced in as text, and only strings are decoded.
#pragma once

#include "core/message.h"

#include <string>
#include <string_view>
#include <vector>

namespace relay::json {

struct Member {
	std::string name;
	std::string_view value; // JSON, within the text that was given
};

// The members of an object; nothing if it is none. What jsonb prints is always understood.
std::optional<std::vector<Member>> members(std::string_view object);

// A string as it is, any other value as its JSON text.
std::string plain(std::string_view value);

// What a string stands for; nothing if the value is not a string.
Text decoded(std::string_view value);

// The text as a JSON string.
std::string in_quotes(std::string_view text);

std::string base64(std::string_view bytes);

// One object, built member by member in this order.
class Object {
public:
	void text(std::string_view name, const Text &value); // null if there is none
	void raw(std::string_view name, std::string_view json);
	[[nodiscard]] std::string end() &&;

private:
	std::string result = "{";
};

} // namespace relay::json
