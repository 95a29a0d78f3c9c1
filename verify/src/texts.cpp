// See texts.h.
#include "texts.h"

#include <cstdio>

namespace outbox::verify {

namespace {

// The code point at the beginning and how many bytes it takes; 0 bytes: no UTF-8.
struct CodePoint {
	uint32_t value;
	size_t size;
};

CodePoint
code_point(std::string_view bytes)
{
	const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
	const size_t size = byte(0) < 0x80       ? 1
						: byte(0) >> 5 == 6  ? 2
						: byte(0) >> 4 == 14 ? 3
						: byte(0) >> 3 == 30 ? 4
											 : 0;
	static constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

	if (size == 0 || size > bytes.size())
		return {0, 0};
	uint32_t value = size == 1 ? byte(0) : byte(0) & (0x7fu >> size);
	for (size_t i = 1; i < size; i++)
	{
		if (byte(i) >> 6 != 2)
			return {0, 0};
		value = value << 6 | (byte(i) & 63u);
	}
	if (value < least[size] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
		return {0, 0};
	return {value, size};
}

// Controls, and what changes the direction of writing, breaks lines or has no width.
bool
acts_on_text(uint32_t value)
{
	return value < 0x20 || (value >= 0x7f && value < 0xa0) || value == 0xad || value == 0x61c ||
		   (value >= 0x200b && value <= 0x200f) || (value >= 0x2028 && value <= 0x202e) ||
		   (value >= 0x2060 && value <= 0x206f) || value == 0xfeff || (value >= 0xfff0 && value <= 0xfffb) ||
		   (value >= 0xe0000 && value <= 0xe0fff);
}

std::string
formatted(const char *format, unsigned value)
{
	char text[16];

	return {text, static_cast<size_t>(snprintf(text, sizeof(text), format, value))};
}

// The day as year, month, day of the Gregorian calendar (H. Hinnant, days_from_civil).
std::string
date_text(int64_t days_since_2000)
{
	const int64_t days = days_since_2000 + 730425; // since 0000-03-01
	const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
	const int64_t day_of_era = days - era * 146097;
	const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	const int64_t shifted = (5 * day_of_year + 2) / 153;
	const int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
	const int64_t year = year_of_era + era * 400 + (month <= 2);
	char text[48];

	snprintf(text, sizeof(text), "%s%04lld-%02d-%02d", year < 0 ? "-" : "",
			 static_cast<long long>(year < 0 ? -year : year), static_cast<int>(month),
			 static_cast<int>(day_of_year - (153 * shifted + 2) / 5 + 1));
	return text;
}

int64_t
take_int(std::string_view *bytes)
{
	const int64_t value = read_number(bytes->substr(0, 4));

	bytes->remove_prefix(4);
	return value;
}

// What stands before the elements of an array.
struct Dimensions {
	int64_t elements;
	std::string text; // empty for one dimension from 1, or none
};

std::optional<Dimensions>
read_dimensions(std::string_view *bytes)
{
	Dimensions found = {1, ""};
	bool is_usual = true;
	const int64_t count = bytes->size() < 4 ? -1 : take_int(bytes);

	if (count < 0 || count > 6 || static_cast<int64_t>(bytes->size()) < 8 * count)
		return {};
	for (int64_t i = 0; i < count; i++)
	{
		const int64_t length = take_int(bytes);
		const int64_t first = take_int(bytes);

		// Each element takes four bytes at least.
		if (length < 1 || first + length - 1 > INT32_MAX ||
			length > static_cast<int64_t>(bytes->size()) / (4 * found.elements))
			return {};
		found.elements *= length;
		is_usual = is_usual && i == 0 && first == 1;
		found.text += "[" + std::to_string(first) + ":" + std::to_string(first + length - 1) + "]";
	}
	if (count == 0)
		found.elements = 0;
	found.text = is_usual ? "" : found.text + "=";
	return found;
}

std::optional<std::string>
array_text(core::ColumnType element, std::string_view bytes)
{
	const auto dimensions = read_dimensions(&bytes);
	std::string text;

	if (!dimensions)
		return {};
	for (int64_t left = dimensions->elements; left > 0; left--)
	{
		if (bytes.size() < 4)
			return {};
		const int64_t size = take_int(&bytes);
		if (size < -1 || size > static_cast<int64_t>(bytes.size()))
			return {};
		const auto value = size < 0 ? std::optional<std::string>("NULL")
									: value_text(element, bytes.substr(0, static_cast<size_t>(size)));
		if (!value)
			return {};
		bytes.remove_prefix(static_cast<size_t>(size < 0 ? 0 : size));
		text += text.empty() ? "" : ", ";
		text += *value;
	}
	if (!bytes.empty())
		return {};
	return dimensions->text + "{" + text + "}";
}

} // namespace

std::string
printable(std::string_view bytes)
{
	std::string text;

	while (!bytes.empty())
	{
		const CodePoint point = code_point(bytes);

		if (point.size == 0)
			text += formatted("\\x%02x", static_cast<unsigned char>(bytes[0]));
		else if (acts_on_text(point.value))
			text += formatted("\\u{%x}", point.value);
		else if (point.value == '\\')
			text += "\\\\";
		else
			text += bytes.substr(0, point.size);
		bytes.remove_prefix(point.size == 0 ? 1 : point.size);
	}
	return text;
}

std::string
to_hex(std::string_view bytes)
{
	std::string text;

	for (unsigned char byte : bytes)
	{
		text += "0123456789abcdef"[byte >> 4];
		text += "0123456789abcdef"[byte & 15];
	}
	return text;
}

std::string
to_hex(const core::Hash &hash)
{
	return to_hex({reinterpret_cast<const char *>(hash.bytes), sizeof(hash.bytes)});
}

std::optional<std::string>
from_hex(std::string_view text)
{
	std::string bytes;
	const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };

	if (text.size() % 2 != 0)
		return {};
	for (size_t i = 0; i < text.size(); i += 2)
	{
		if (digit(text[i]) < 0 || digit(text[i + 1]) < 0)
			return {};
		bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
	}
	return bytes;
}

int64_t
read_number(std::string_view bytes)
{
	uint64_t value = static_cast<unsigned char>(bytes[0]) >= 0x80 ? UINT64_MAX : 0;

	for (unsigned char byte : bytes)
		value = value << 8 | byte;
	return static_cast<int64_t>(value);
}

std::string
time_text(int64_t microseconds)
{
	constexpr int64_t day = 86'400'000'000;

	if (microseconds == INT64_MIN)
		return "-infinity";
	if (microseconds == INT64_MAX)
		return "infinity";
	const int64_t days = microseconds / day - (microseconds % day < 0);
	const int64_t rest = (microseconds % day + day) % day;
	char text[32];
	snprintf(text, sizeof(text), "T%02d:%02d:%02d.%06dZ", static_cast<int>(rest / 3'600'000'000),
			 static_cast<int>(rest / 60'000'000 % 60), static_cast<int>(rest / 1'000'000 % 60),
			 static_cast<int>(rest % 1'000'000));
	return date_text(days) + text;
}

std::string
uuid_text(std::string_view bytes)
{
	std::string text;

	for (size_t i = 0; i < bytes.size(); i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			text += '-';
		text += to_hex(bytes.substr(i, 1));
	}
	return text;
}

std::optional<std::string>
value_text(core::ColumnType type, std::string_view bytes)
{
	using core::ColumnType;
	const auto number = [&](size_t size) -> std::optional<std::string> {
		if (bytes.size() != size)
			return {};
		return std::to_string(read_number(bytes));
	};

	switch (type)
	{
		case ColumnType::uuid:
			return bytes.size() == 16 ? std::optional(uuid_text(bytes)) : std::nullopt;
		case ColumnType::text:
		case ColumnType::jsonb:
			return "\"" + printable(bytes) + "\"";
		case ColumnType::smallint:
			return number(2);
		case ColumnType::integer:
			return number(4);
		case ColumnType::bigint:
			return number(8);
		case ColumnType::timestamptz:
			return bytes.size() == 8 ? std::optional(time_text(read_number(bytes))) : std::nullopt;
		case ColumnType::bytea:
			return "\\x" + to_hex(bytes);
		case ColumnType::uuids:
			return array_text(ColumnType::uuid, bytes);
		case ColumnType::integers:
			return array_text(ColumnType::integer, bytes);
	}
	return {};
}

} // namespace outbox::verify
