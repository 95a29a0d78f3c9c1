// Logs over spdlog.
//
// Guarantees: what a value holds cannot break its line: control characters are escaped, and bytes that are not UTF-8
// are replaced. Values are redacted before they are escaped, since an escaped secret would not be recognized. There
// are two loggers, text and JSON, so that a line that is made while the settings change has one format throughout.
#include "seen/log.h"
#include "core/secret.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include <nlohmann/json.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace relay {

namespace {

struct Loggers {
	spdlog::logger text{"text", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
	spdlog::logger json{"json", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
	std::atomic<bool> use_json = false;

	Loggers()
	{
		set(text, "%Y-%m-%dT%H:%M:%S.%eZ %l %v");
		set(json, R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})");
	}

	static void set(spdlog::logger &logger, const char *pattern)
	{
		logger.set_formatter(
			std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc, "\n"));
		logger.set_error_handler([](const std::string &) {});
	}

	spdlog::logger &current() { return use_json ? json : text; }
};

// Never destroyed: other threads may still log while the program ends.
Loggers &
loggers()
{
	static auto &the = *new Loggers;
	return the;
}

spdlog::level::level_enum
spdlog_level(Level level)
{
	switch (level)
	{
		case Level::debug:
			return spdlog::level::debug;
		case Level::info:
			return spdlog::level::info;
		case Level::warning:
			return spdlog::level::warn;
		case Level::error:
			break;
	}
	return spdlog::level::err;
}

// DEL and the controls U+0080 to U+009F, which JSON allows as they are and some terminals obey.
bool
hides_control(std::string_view text)
{
	for (size_t i = 0; i < text.size(); i++)
	{
		const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
		if (text[i] == '\x7f' || (text[i] == '\xc2' && next >= 0x80 && next < 0xa0))
		{
			return true;
		}
	}
	return false;
}

// As a JSON string, in quotes.
std::string
quoted(std::string_view value)
{
	const auto clean = redact(value);
	return nlohmann::json(clean).dump(-1, ' ', hides_control(clean), nlohmann::json::error_handler_t::replace);
}

// For people: the same escapes, but no quotes around it and none of them escaped.
std::string
unquoted(std::string_view value)
{
	const auto text = quoted(value);
	std::string result;

	for (size_t i = 1; i + 1 < text.size(); i++)
	{
		if (text[i] == '\\' && text[i + 1] != '"')
		{
			result += text[i++];
			result += text[i];
		}
		else if (text[i] != '\\')
		{
			result += text[i];
		}
	}
	return result;
}

std::string
bare_if_simple(std::string_view value)
{
	const bool simple = std::none_of(value.begin(), value.end(), [](unsigned char c) {
		return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '=';
	});
	return simple ? redact(value) : quoted(value);
}

std::string
text_line(std::string_view text, Fields fields)
{
	auto line = unquoted(text);

	for (const auto &[name, value] : fields)
	{
		if (!value.empty())
		{
			line.append(" ").append(name).append("=").append(bare_if_simple(value));
		}
	}
	return line;
}

std::string
json_members(std::string_view text, Fields fields)
{
	auto line = "\"message\":" + quoted(text);

	for (const auto &[name, value] : fields)
	{
		if (!value.empty())
		{
			line.append(",").append(quoted(name)).append(":").append(quoted(value));
		}
	}
	return line;
}

} // namespace

void
set_up_log(const LogSettings &settings)
{
	auto &both = loggers();

	both.text.set_level(spdlog_level(settings.level));
	both.json.set_level(spdlog_level(settings.level));
	both.use_json = settings.json;
}

void
log(Level level, std::string_view text, Fields fields)
{
	auto &both = loggers();
	const bool json = both.use_json;
	auto &logger = json ? both.json : both.text;

	if (logger.should_log(spdlog_level(level)))
	{
		const auto line = json ? json_members(text, fields) : text_line(text, fields);
		logger.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
	}
}

bool
logs(Level level)
{
	return loggers().current().should_log(spdlog_level(level));
}

} // namespace relay
