// One table of the configuration, read value by value.
//
// Guarantees: a value of the wrong type or out of range, and a key that is not asked for, is a ConfigError that names
// the key, the value and the line. A string may stand as it is, or come from elsewhere: { env = "NAME" },
// { file = "PATH" } (the last newline is dropped) or { credential = "NAME" }, a file in the folder that systemd
// names by CREDENTIALS_DIRECTORY. A secret is registered (core/secret.h), so that it can be kept out of whatever is
// written. OUTBOX_RELAY__SINK__EVENTS__TIMEOUT=10s in the environment stands for that value of [sink.events], whatever
// the file says.
#pragma once

#include "toml/parser.h"
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
	// Refuses what was not asked for; of the root also variables of the environment.
	void done() const;
	// Equal if the same values were read, from wherever they came; those of inner sections count.
	[[nodiscard]] std::string fingerprint() const;

private:
	struct Found; // a value, of the file or the environment
	struct Log;   // what was asked for; shared by copies

	Section(const toml::table &table, std::string path, std::shared_ptr<Log> log);
	Found find(std::string_view key);
	[[nodiscard]] std::string variable(std::string_view key) const;
	[[nodiscard]] std::string name(std::string_view key) const;
	[[nodiscard]] std::shared_ptr<Log> inner_log() const;
	std::string string_of(std::string_view key, const toml::node &node, bool secret);
	std::string elsewhere(std::string_view key, const toml::table &place);
	void note(std::string_view key, std::string_view value);
	std::vector<std::string> strings(std::string_view key, const Found &found, bool secret);
	void flatten(std::string_view key, const toml::table &from, const std::string &prefix,
				 std::map<std::string, std::string> &into);
	[[noreturn]] void wrong_type(std::string_view key, const Found &found, std::string_view wanted) const;

	const toml::table *table;
	std::string my_path;
	std::shared_ptr<Log> log;
};

// Nothing if it cannot be read.
std::optional<std::string> contents_of(const std::string &file);

// The words that are like this one, for messages: ", did you mean "timeout"?", or nothing.
std::string suggestion(std::string_view word, const std::vector<std::string> &words);

} // namespace relay
