// See json.h.
#include "json.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "findings.h"
#include "texts.h"

namespace outbox::verify {

namespace {

// Looks at what the parser meets.
class Watch {
public:
	bool operator()(int depth, Json::parse_event_t event, Json &parsed)
	{
		if (depth > deepest)
			throw Unreadable("the JSON is nested too deep");
		if (event == Json::parse_event_t::object_start)
			keys_.emplace_back();
		else if (event == Json::parse_event_t::object_end)
			keys_.pop_back();
		else if (event == Json::parse_event_t::key && !keys_.back().insert(parsed.get<std::string>()).second)
			throw Unreadable("the JSON has the key \"" + printable(parsed.get<std::string>()) +
							 "\" twice in one object");
		return true;
	}

private:
	std::vector<std::set<std::string>> keys_;
};

const Json &
member(const Json &object, const char *key)
{
	const auto found = object.is_object() ? object.find(key) : object.end();

	require(object.is_object() && found != object.end(), std::string("\"") + key + "\" is missing");
	return *found;
}

} // namespace

Json
parse(std::string_view text)
{
	Watch watch;

	try
	{
		return Json::parse(text.begin(), text.end(), std::ref(watch));
	}
	catch (const Json::exception &error)
	{
		throw Unreadable("the file is not JSON: " + printable(error.what()));
	}
}

void
require_keys(const Json &object, const std::string &what, std::initializer_list<std::string_view> keys)
{
	require(object.is_object(), what + " is not an object");
	for (std::string_view key : keys)
		require(object.contains(key), what + " has no \"" + std::string(key) + "\"");
	for (const auto &[key, value] : object.items())
		require(std::find(keys.begin(), keys.end(), key) != keys.end(),
				what + " has an unknown key \"" + printable(key) + "\"");
}

std::string
text_of(const Json &object, const char *key)
{
	const Json &value = member(object, key);

	require(value.is_string(), std::string("\"") + key + "\" is not a string");
	return value.get<std::string>();
}

int64_t
number_of(const Json &object, const char *key)
{
	const Json &value = member(object, key);

	require(value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX),
			std::string("\"") + key + "\" is not an integer of 64 bits");
	return value.get<int64_t>();
}

const Json &
array_of(const Json &object, const char *key)
{
	const Json &value = member(object, key);

	require(value.is_array(), std::string("\"") + key + "\" is not an array");
	return value;
}

core::Hash
hash_of(const Json &object, const char *key)
{
	return read_hash(text_of(object, key), std::string("\"") + key + "\"");
}

std::optional<core::Hash>
maybe_hash_of(const Json &object, const char *key)
{
	if (member(object, key).is_null())
		return {};
	return hash_of(object, key);
}

core::Hash
read_hash(std::string_view hex, const std::string &what)
{
	const auto bytes = from_hex(hex);
	core::Hash hash;

	require(bytes && bytes->size() == sizeof(hash.bytes), what + " is not a hash of 64 lower-case hexadecimal digits");
	memcpy(hash.bytes, bytes->data(), sizeof(hash.bytes));
	return hash;
}

std::optional<std::string>
maybe_bytes(const Json &value, const std::string &what)
{
	if (value.is_null())
		return {};
	const auto bytes = value.is_string() ? from_hex(value.get_ref<const std::string &>()) : std::nullopt;
	require(bytes.has_value(), what + " is not lower-case hexadecimal digits");
	return *bytes;
}

} // namespace outbox::verify
