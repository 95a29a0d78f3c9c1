// One table of the configuration, read value by value.
//
// Guarantees: a value of the wrong type or out of range, and a key that nobody asked for, is a ConfigError that names
// the key, the value and the line. A string may stand as it is, or come from elsewhere: { env = "NAME" } or
// { file = "PATH" } (the last newline is dropped). A secret is registered (core/secret.h), so that it can be kept out
// of whatever is written. OUTBOX_RELAY__SINK__EVENTS__TIMEOUT=10s in the environment stands for that value of
// [sink.events], whatever the file says.
#pragma once

#include "core/secret.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

namespace relay {

struct ConfigError : std::runtime_error {
	using std::runtime_error::runtime_error;
};

class Section {
public:
	// `path` names the table in messages: "sink.events".
	Section(const toml::table &table, std::string path);

	[[nodiscard]] const std::string &path() const { return my_path; }
	[[nodiscard]] bool has(std::string_view key);

	std::string text(std::string_view key); // must be there
	std::string text(std::string_view key, std::string_view otherwise);
	std::optional<std::string> maybe_text(std::string_view key);
	std::optional<Secret> secret(std::string_view key);
	std::vector<Secret> secrets(std::string_view key); // a string or an array of strings
	std::vector<std::string> texts(std::string_view key, std::vector<std::string> otherwise);
	int64_t number(std::string_view key, int64_t otherwise, int64_t least, int64_t most);
	std::vector<int64_t> numbers(std::string_view key);
	bool flag(std::string_view key, bool otherwise);
	// "250ms", "30s", "5m", "1h"
	std::chrono::milliseconds duration(std::string_view key, std::chrono::milliseconds otherwise);
	// One of these words.
	std::string choice(std::string_view key, std::string_view otherwise, const std::vector<std::string> &choices);
	// A table whose keys are free: strings, numbers and booleans as text; a value may be a secret from elsewhere.
	std::map<std::string, std::string> free(std::string_view key);
	Section section(std::string_view key); // empty if it is not there
	std::vector<Section> sections(std::string_view key);

	[[noreturn]] void refuse(std::string_view key, std::string_view problem) const;
	// Refuses what nobody asked for.
	void done() const;

private:
	const toml::node *find(std::string_view key);

	const toml::table *table;
	std::string my_path;
	std::shared_ptr<std::vector<std::string>> asked; // shared by copies
};

} // namespace relay
