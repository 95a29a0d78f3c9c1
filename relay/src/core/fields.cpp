// See fields.h.
#include "core/fields.h"

#include "core/json.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace relay {

namespace {

struct Field {
	std::string_view name;
	Text (*value)(const Message &);
};

constexpr Field fields[] = {
	{"outbox_id", [](const Message &m) -> Text { return m.outbox_id; }},
	{"queue", [](const Message &m) -> Text { return m.queue; }},
	{"event_id", [](const Message &m) -> Text { return m.event_id; }},
	{"event_type", [](const Message &m) -> Text { return m.event_type; }},
	{"aggregate_type", [](const Message &m) { return m.aggregate_type; }},
	{"aggregate_id", [](const Message &m) { return m.aggregate_id; }},
	{"partition_key", [](const Message &m) { return m.partition_key; }},
	{"idempotency_key", [](const Message &m) { return m.idempotency_key; }},
	{"routing_key", [](const Message &m) { return m.routing_key; }},
	{"sequence_id",
	 [](const Message &m) -> Text {
		 if (!m.sequence_id)
			 return {};
		 return std::to_string(*m.sequence_id);
	 }},
	{"priority", [](const Message &m) -> Text { return std::to_string(m.priority); }},
	{"attempt", [](const Message &m) -> Text { return std::to_string(m.attempt); }},
	{"content_type", [](const Message &m) { return m.content_type; }},
	{"created_at", [](const Message &m) -> Text { return rfc3339(m.created_at); }},
};

constexpr auto names = [] {
	std::array<std::string_view, std::size(fields)> result;
	std::transform(std::begin(fields), std::end(fields), result.begin(), [](const Field &field) { return field.name; });
	return result;
}();

constexpr std::string_view header_prefix = "header:";

Text
unless_empty(Text text)
{
	return text && text->empty() ? Text{} : text;
}

} // namespace

std::span<const std::string_view>
field_names()
{
	return names;
}

Text
field_of(const Message &message, std::string_view name)
{
	if (name.starts_with(header_prefix))
		return unless_empty(header_of(message, name.substr(header_prefix.size())));
	const auto *field =
		std::find_if(std::begin(fields), std::end(fields), [&](const Field &one) { return one.name == name; });
	return field == std::end(fields) ? Text{} : unless_empty(field->value(message));
}

Text
header_of(const Message &message, std::string_view name)
{
	if (message.headers == "{}")
		return {};
	const auto members = json::members(message.headers);
	if (members)
		for (const json::Member &member : *members)
			if (member.name == name)
				return json::plain(member.value);
	return {};
}

std::optional<int>
schema_version_of(const Message &message)
{
	const std::string text = header_of(message, "schema_version").value_or("1");
	int version = 0;
	const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), version);

	if (problem != std::errc() || end != text.data() + text.size())
		return {};
	return version;
}

std::string
rfc3339(std::chrono::sys_time<std::chrono::microseconds> time)
{
	const auto day = std::chrono::floor<std::chrono::days>(time);
	const std::chrono::year_month_day date(day);
	const std::chrono::hh_mm_ss clock(time - day);
	std::string text;
	auto number = [&](int64_t value, size_t digits, char after) {
		const std::string written = std::to_string(value);

		text.append(digits - std::min(digits, written.size()), '0').append(written).push_back(after);
	};

	text.reserve(32);
	number(static_cast<int>(date.year()), 4, '-');
	number(static_cast<unsigned>(date.month()), 2, '-');
	number(static_cast<unsigned>(date.day()), 2, 'T');
	number(clock.hours().count(), 2, ':');
	number(clock.minutes().count(), 2, ':');
	number(clock.seconds().count(), 2, '.');
	number(clock.subseconds().count(), 6, 'Z');
	return text;
}

std::string
percent_encoded(std::string_view text)
{
	constexpr std::string_view kept = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	constexpr std::string_view digits = "0123456789ABCDEF";
	std::string result;

	for (const char c : text)
		if (kept.find(c) != std::string_view::npos)
			result += c;
		else
		{
			result += '%';
			result += digits[static_cast<unsigned char>(c) >> 4];
			result += digits[static_cast<unsigned char>(c) & 15];
		}
	return result;
}

} // namespace relay
