// Logs: one line an event, text or a JSON object, to stderr.
//
// Guarantees: any thread may log; a line is written whole; secrets are redacted; fields have the same names everywhere
// (outbox_id, event_id, event_type, queue, attempt, sink, class, code, trace_id, source). A log that cannot be written
// stops nothing.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace relay {

enum class Level { debug, info, warning, error };

using Fields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

struct LogSettings {
	bool json = false;
	Level level = Level::info;
	bool operator==(const LogSettings &) const = default;
};

void set_up_log(const LogSettings &settings); // at the start, and again after a reload
// A field whose value is empty is left out.
void log(Level level, std::string_view text, Fields fields = {});
[[nodiscard]] bool logs(Level level);

} // namespace relay
