// See json.h.
#include "core/json.h"

#include <nlohmann/json.hpp>
#include <openssl/evp.h>

namespace relay::json {

namespace {

constexpr std::string_view space = " \t\r\n";

size_t
skip_space(std::string_view text, size_t at)
{
	const size_t next = text.find_first_not_of(space, at);
	return next == std::string_view::npos ? text.size() : next;
}

// After the string that begins at `at`; the text's end and one more if it does not end.
size_t
end_of_string(std::string_view text, size_t at)
{
	for (at++; at < text.size() && text[at] != '"'; at++)
		if (text[at] == '\\')
			at++;
	return at + 1;
}

// After the value that begins at `at`: at the comma or brace that follows it.
size_t
end_of_value(std::string_view text, size_t at)
{
	size_t depth = 0;

	while (at < text.size())
		switch (text[at])
		{
			case '"':
				at = end_of_string(text, at);
				break;
			case '{':
			case '[':
				depth++;
				at++;
				break;
			case '}':
			case ']':
				if (depth == 0)
					return at;
				depth--;
				at++;
				break;
			case ',':
				if (depth == 0)
					return at;
				[[fallthrough]];
			default:
				at++;
		}
	return at;
}

} // namespace

Text
decoded(std::string_view value)
{
	if (value.empty() || value.front() != '"')
		return {};
	const auto parsed = nlohmann::json::parse(value, nullptr, false);
	if (!parsed.is_string())
		return {};
	return parsed.get<std::string>();
}

std::optional<std::vector<Member>>
members(std::string_view object)
{
	std::vector<Member> result;
	size_t at = skip_space(object, 0);

	if (at == object.size() || object[at] != '{')
		return {};
	at = skip_space(object, at + 1);
	if (at < object.size() && object[at] == '}' && skip_space(object, at + 1) == object.size())
		return result;
	while (at < object.size() && object[at] == '"')
	{
		const size_t name_end = end_of_string(object, at);
		if (name_end > object.size())
			return {};
		const Text name = decoded(object.substr(at, name_end - at));
		at = skip_space(object, name_end);
		if (!name || at == object.size() || object[at] != ':')
			return {};
		const size_t value = skip_space(object, at + 1);
		at = end_of_value(object, value);
		if (at >= object.size() || object[at] == ']')
			return {};
		const std::string_view whole = object.substr(value, at - value);
		const size_t last = whole.find_last_not_of(space);
		if (last == std::string_view::npos)
			return {};
		result.push_back({*name, whole.substr(0, last + 1)});
		const size_t next = skip_space(object, at + 1);
		if (object[at] == '}' && next == object.size())
			return result;
		if (object[at] == '}')
			return {};
		at = next;
	}
	return {};
}

std::string
plain(std::string_view value)
{
	return decoded(value).value_or(std::string(value));
}

std::string
in_quotes(std::string_view text)
{
	return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string
base64(std::string_view bytes)
{
	// Pieces of whole groups, since OpenSSL counts in int.
	constexpr size_t piece = size_t{3} << 28;
	std::string result((bytes.size() + 2) / 3 * 4 + 1, '\0'); // OpenSSL ends it with a zero
	size_t length = 0;

	for (size_t at = 0; at < bytes.size(); at += piece)
	{
		const std::string_view part = bytes.substr(at, piece);
		length += static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char *>(&result[length]),
													  reinterpret_cast<const unsigned char *>(part.data()),
													  static_cast<int>(part.size())));
	}
	result.resize(length);
	return result;
}

void
Object::text(std::string_view name, const Text &value)
{
	raw(name, value ? in_quotes(*value) : "null");
}

void
Object::raw(std::string_view name, std::string_view json)
{
	if (result.size() > 1)
		result += ',';
	result += in_quotes(name);
	result += ':';
	result += json;
}

std::string
Object::end() &&
{
	result += '}';
	return std::move(result);
}

} // namespace relay::json
