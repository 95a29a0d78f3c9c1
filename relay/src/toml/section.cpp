// See section.h.
#include "toml/section.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <numeric>
#include <sstream>

#include <openssl/evp.h>
#include <unistd.h>

namespace relay {

namespace {

constexpr std::string_view prefix = "OUTBOX_RELAY__";

const toml::table nothing;

std::string
quote(std::string_view text)
{
	return "\"" + std::string(text) + "\"";
}

std::string
line_of(const toml::node *node)
{
	const auto line = node == nullptr ? 0 : node->source().begin.line;
	return line == 0 ? "" : "line " + std::to_string(line) + ": ";
}

std::vector<std::string>
split(std::string_view text)
{
	std::vector<std::string> result;

	for (size_t at = 0; at <= text.size();)
	{
		const size_t comma = std::min(text.find(',', at), text.size());
		std::string_view part = text.substr(at, comma - at);
		while (!part.empty() && part.front() == ' ')
			part.remove_prefix(1);
		while (!part.empty() && part.back() == ' ')
			part.remove_suffix(1);
		if (!part.empty())
			result.emplace_back(part);
		at = comma + 1;
	}
	return result;
}

size_t
distance(std::string_view left, std::string_view right)
{
	std::vector<size_t> row(right.size() + 1);

	std::iota(row.begin(), row.end(), size_t{0});
	for (size_t i = 1; i <= left.size(); i++)
	{
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= right.size(); j++)
		{
			const size_t cost = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
			diagonal = row[j];
			row[j] = std::min({row[j] + 1, row[j - 1] + 1, cost});
		}
	}
	return row.back();
}

bool
is_place(const toml::node &node)
{
	const auto *table = node.as_table();
	return table != nullptr && table->size() == 1 &&
		   (table->contains("env") || table->contains("file") || table->contains("credential"));
}

std::optional<int64_t>
parsed_number(std::string_view text)
{
	int64_t value = 0;
	const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
	if (error != std::errc{} || end != text.data() + text.size())
		return {};
	return value;
}

std::optional<std::chrono::milliseconds>
parsed_duration(std::string_view text)
{
	struct Unit {
		std::string_view name;
		int64_t milliseconds;
	};
	constexpr Unit units[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
	const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
	const auto number = parsed_number(text.substr(0, digits));
	int64_t result = 0;

	for (const Unit &unit : units)
		if (number && text.substr(digits) == unit.name && !__builtin_mul_overflow(*number, unit.milliseconds, &result))
			return std::chrono::milliseconds(result);
	return {};
}

} // namespace

struct Section::Found {
	const toml::node *node = nullptr;
	std::optional<std::string> variable; // of the environment, which comes first
	explicit operator bool() const { return node != nullptr || variable; }
};

struct Section::Log {
	std::vector<std::string> asked, variables, values;
	std::shared_ptr<Log> outer;
};

Section::Section(const toml::table &table, std::string path) : Section(table, std::move(path), std::make_shared<Log>())
{
}

Section::Section(const toml::table &table, std::string path, std::shared_ptr<Log> log)
	: table(&table), my_path(std::move(path)), log(std::move(log))
{
}

std::string
Section::variable(std::string_view key) const
{
	std::string result;

	for (const char c : name(key))
		if (c == '.')
			result += "__";
		else
			result += std::isalnum(static_cast<unsigned char>(c)) != 0
						  ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
						  : '_';
	return std::string(prefix) + result;
}

std::string
Section::name(std::string_view key) const
{
	return my_path.empty() ? std::string(key) : my_path + "." + std::string(key);
}

std::shared_ptr<Section::Log>
Section::inner_log() const
{
	auto result = std::make_shared<Log>();
	result->outer = log;
	return result;
}

Section::Found
Section::find(std::string_view key)
{
	Found result;

	log->asked.emplace_back(key);
	result.node = table->get(key);
	const std::string name = variable(key);
	if (const char *value = getenv(name.c_str()))
	{
		result.variable = value;
		for (Log *one = log.get(); one != nullptr; one = one->outer.get())
			one->variables.push_back(name);
	}
	return result;
}

void
Section::note(std::string_view key, std::string_view value)
{
	for (Log *one = log.get(); one != nullptr; one = one->outer.get())
		one->values.push_back(name(key) + "=" + std::to_string(value.size()) + ":" + std::string(value));
}

void
Section::refuse(std::string_view key, std::string_view problem) const
{
	const bool given = getenv(variable(key).c_str()) != nullptr;
	throw ConfigError(redact((given ? variable(key) + ": " : line_of(table->get(key))) + quote(name(key)) + " " +
							 std::string(problem)));
}

// Does not show the value: it may be a secret in the wrong place.
void
Section::wrong_type(std::string_view key, const Found &found, std::string_view wanted) const
{
	std::ostringstream type;

	if (!found.variable && found.node != nullptr)
		type << ", not of type " << found.node->type();
	refuse(key, "must be " + std::string(wanted) + type.str());
}

bool
Section::has(std::string_view key)
{
	return static_cast<bool>(find(key));
}

std::string
Section::elsewhere(std::string_view key, const toml::table &place)
{
	const auto env = place["env"].value<std::string>(), credential = place["credential"].value<std::string>();
	auto file = place["file"].value<std::string>();

	if (env)
	{
		const char *value = getenv(env->c_str());
		if (value == nullptr)
			refuse(key, "is in the environment variable " + *env + ", which is not set");
		return value;
	}
	if (credential)
	{
		const char *folder = getenv("CREDENTIALS_DIRECTORY");
		if (folder == nullptr)
			refuse(key, "is the credential " + quote(*credential) + ", but CREDENTIALS_DIRECTORY is not set");
		file = std::string(folder) + "/" + *credential;
	}
	if (!file)
		refuse(key, "must name env, file or credential by a string");
	auto contents = contents_of(*file);
	if (!contents)
		refuse(key, "is in the file " + quote(*file) + ", which cannot be read");
	std::string text = std::move(*contents);
	if (text.ends_with('\n'))
		text.pop_back();
	return text;
}

std::string
Section::string_of(std::string_view key, const toml::node &node, bool secret)
{
	std::string result;

	if (is_place(node))
		result = elsewhere(key, *node.as_table());
	else if (const auto *text = node.as_string())
		result = text->get();
	else
		wrong_type(key, {&node, {}}, R"(a string, { env = "NAME" }, { file = "PATH" } or { credential = "NAME" })");
	if (secret)
		Secret{result};
	if (result.find('\0') != std::string::npos)
		refuse(key, "has a zero byte");
	note(key, result);
	return result;
}

std::optional<std::string>
Section::maybe_text(std::string_view key)
{
	const Found found = find(key);

	if (found.variable)
	{
		note(key, *found.variable);
		return found.variable;
	}
	if (found.node == nullptr)
		return {};
	return string_of(key, *found.node, false);
}

std::string
Section::text(std::string_view key)
{
	auto value = maybe_text(key);

	if (!value)
		refuse(key, "is missing");
	return std::move(*value);
}

std::string
Section::text(std::string_view key, std::string_view otherwise)
{
	return maybe_text(key).value_or(std::string(otherwise));
}

std::optional<Secret>
Section::secret(std::string_view key)
{
	const Found found = find(key);

	if (!found)
		return {};
	if (!found.variable)
		return Secret(string_of(key, *found.node, true));
	note(key, *found.variable);
	return Secret(*found.variable);
}

std::vector<std::string>
Section::strings(std::string_view key, const Found &found, bool secret)
{
	std::vector<std::string> result;

	if (found.variable)
		for (std::string &one : split(*found.variable))
		{
			note(key, one);
			result.push_back(std::move(one));
		}
	else if (const auto *array = found.node->as_array())
		for (const toml::node &node : *array)
			result.push_back(string_of(key, node, secret));
	else
		result.push_back(string_of(key, *found.node, secret));
	return result;
}

std::vector<Secret>
Section::secrets(std::string_view key)
{
	const Found found = find(key);
	std::vector<Secret> result;

	if (found)
		for (std::string &one : strings(key, found, true))
			result.emplace_back(std::move(one));
	return result;
}

std::vector<std::string>
Section::texts(std::string_view key, std::vector<std::string> otherwise)
{
	const Found found = find(key);

	return found ? strings(key, found, false) : std::move(otherwise);
}

int64_t
Section::number(std::string_view key, int64_t otherwise, int64_t least, int64_t most)
{
	const Found found = find(key);
	std::optional<int64_t> value;

	if (!found)
		return otherwise;
	if (found.variable)
		value = parsed_number(*found.variable);
	else if (found.node->is_integer())
		value = found.node->value<int64_t>();
	if (!value)
		wrong_type(key, found, "a whole number");
	if (*value < least || *value > most)
		refuse(key, "is " + std::to_string(*value) + ", but must be from " + std::to_string(least) + " to " +
						std::to_string(most));
	note(key, std::to_string(*value));
	return *value;
}

std::vector<int64_t>
Section::numbers(std::string_view key)
{
	const Found found = find(key);
	const toml::array *array = found.node == nullptr ? nullptr : found.node->as_array();
	std::vector<int64_t> result;

	if (!found)
		return result;
	if (!found.variable && array == nullptr)
		wrong_type(key, found, "an array of whole numbers");
	const auto add = [&](std::optional<int64_t> value) {
		if (!value)
			refuse(key, "must be an array of whole numbers");
		note(key, std::to_string(*value));
		result.push_back(*value);
	};
	if (found.variable)
		for (const std::string &one : split(*found.variable))
			add(parsed_number(one));
	else
		for (const toml::node &node : *array)
			add(node.is_integer() ? node.value<int64_t>() : std::nullopt);
	return result;
}

bool
Section::flag(std::string_view key, bool otherwise)
{
	const Found found = find(key);
	std::optional<bool> value;

	if (!found)
		return otherwise;
	if (found.variable && (*found.variable == "true" || *found.variable == "false"))
		value = *found.variable == "true";
	else if (!found.variable && found.node->is_boolean())
		value = found.node->value<bool>();
	if (!value)
		wrong_type(key, found, "true or false");
	note(key, *value ? "true" : "false");
	return *value;
}

std::chrono::milliseconds
Section::duration(std::string_view key, std::chrono::milliseconds otherwise)
{
	const auto text = maybe_text(key);

	if (!text)
		return otherwise;
	const auto value = parsed_duration(*text);
	if (!value)
		refuse(key, "is " + quote(*text) + R"(, but must be a duration such as "250ms", "30s", "5m" or "1h")");
	return *value;
}

std::string
Section::choice(std::string_view key, std::string_view otherwise, const std::vector<std::string> &choices)
{
	std::string value = text(key, otherwise);
	std::string all;

	if (std::find(choices.begin(), choices.end(), value) != choices.end())
		return value;
	for (const std::string &one : choices)
		all += (all.empty() ? "" : ", ") + one;
	refuse(key, "is " + quote(value) + ", but must be one of " + all + suggestion(value, choices));
}

void
Section::flatten(std::string_view key, const toml::table &from, const std::string &prefix,
				 std::map<std::string, std::string> &into)
{
	for (const auto &[name, node] : from)
	{
		const std::string whole = prefix + std::string(name.str());
		const std::string there = std::string(key) + "." + whole;
		const Found found{&node, {}};
		std::ostringstream text;
		if (is_place(node))
			into[whole] = Secret(string_of(there, node, true)).reveal();
		else if (const auto *inner = node.as_table())
			flatten(key, *inner, whole + ".", into);
		else if (const auto *string = node.as_string())
			text << string->get();
		else if (const auto *number = node.as_integer())
			text << number->get();
		else if (const auto *real = node.as_floating_point())
			text << *real;
		else if (const auto *flag = node.as_boolean())
			text << (flag->get() ? "true" : "false");
		else
			throw ConfigError(
				redact(line_of(&node) + quote(this->name(there)) + " must be a string, a number or a boolean"));
		if (node.as_table() == nullptr)
		{
			into[whole] = text.str();
			note(there, into[whole]);
		}
	}
}

std::map<std::string, std::string>
Section::free(std::string_view key)
{
	const Found found = find(key);
	std::map<std::string, std::string> result;

	if (found.variable || (found.node != nullptr && found.node->as_table() == nullptr))
		wrong_type(key, found, "a table");
	if (found.node == nullptr)
		return result;
	flatten(key, *found.node->as_table(), {}, result);
	return result;
}

Section
Section::section(std::string_view key)
{
	const Found found = find(key);

	if (found.variable || (found.node != nullptr && found.node->as_table() == nullptr))
		wrong_type(key, found, "a table");
	return {found.node == nullptr ? nothing : *found.node->as_table(), name(key), inner_log()};
}

std::vector<Section>
Section::sections(std::string_view key)
{
	const Found found = find(key);
	const toml::array *array = found.node == nullptr ? nullptr : found.node->as_array();
	std::vector<Section> result;

	if (found.variable || (found.node != nullptr && (array == nullptr || !array->is_homogeneous<toml::table>())))
		wrong_type(key, found, "an array of tables: [[" + name(key) + "]]");
	if (array != nullptr)
		for (const toml::node &node : *array)
			result.push_back(
				Section(*node.as_table(), name(key) + "." + std::to_string(result.size() + 1), inner_log()));
	return result;
}

void
Section::done() const
{
	for (const auto &[key, node] : *table)
		if (std::find(log->asked.begin(), log->asked.end(), key.str()) == log->asked.end())
			throw ConfigError(
				redact(line_of(&node) + "unknown key " + quote(name(key.str())) + suggestion(key.str(), log->asked)));
	if (!my_path.empty())
		return;
	for (char **one = environ; *one != nullptr; one++)
	{
		const std::string_view entry(*one), name = entry.substr(0, entry.find('='));
		if (name.starts_with(prefix) &&
			std::find(log->variables.begin(), log->variables.end(), name) == log->variables.end())
			throw ConfigError("unknown environment variable " + std::string(name) +
							  ": no section of the configuration has such a value");
	}
}

std::string
Section::fingerprint() const
{
	std::vector<std::string> values = log->values;
	std::string text, result;
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int size = 0;

	std::sort(values.begin(), values.end());
	for (const std::string &value : values)
		text += value + "\n";
	EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
	for (unsigned int i = 0; i < size; i++)
		for (const int shift : {4, 0})
			result += "0123456789abcdef"[digest[i] >> shift & 15];
	return result;
}

std::optional<std::string>
contents_of(const std::string &file)
{
	std::ifstream stream(file, std::ios::binary);
	std::ostringstream contents;

	stream.peek(); // of a folder this fails
	if (!stream.is_open() || stream.bad())
		return {};
	if (!stream.eof())
		contents << stream.rdbuf();
	return std::move(contents).str();
}

std::string
suggestion(std::string_view word, const std::vector<std::string> &words)
{
	constexpr size_t longest = 64;
	std::string result;

	if (word.size() > longest)
		return result;
	std::vector<std::string> sorted(words);
	std::sort(sorted.begin(), sorted.end());
	sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
	for (const std::string &one : sorted)
		if (distance(word, one) <= std::max<size_t>(1, word.size() / 4))
			result += (result.empty() ? "; did you mean " : " or ") + quote(one);
	return result.empty() ? result : result + "?";
}

} // namespace relay
