// See template.h.
#include "core/template.h"

#include "core/fields.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace relay {

namespace {

[[noreturn]] void
fail(std::string_view source, const std::string &problem)
{
	throw std::invalid_argument("template \"" + std::string(source) + "\": " + problem);
}

// Reads the alternatives between { and }. A quoted text keeps its first quote, which no field begins with.
class Alternatives {
public:
	Alternatives(std::string_view source, size_t at) : source(source), at(at) {}

	std::vector<std::string> read()
	{
		std::vector<std::string> result;

		do
			result.push_back(more() && source[at] == '\'' ? literal() : field());
		while (separator() == '|');
		return result;
	}

	[[nodiscard]] size_t end() const { return at; }

private:
	[[nodiscard]] bool more() const { return at < source.size(); }

	// 'it''s'
	std::string literal()
	{
		std::string text = "'";

		for (at++; more(); at++)
		{
			if (source[at] == '\'' && (at + 1 == source.size() || source[at + 1] != '\''))
				break;
			if (source[at] == '\'')
				at++;
			text += source[at];
		}
		if (!more())
			fail(source, "a quoted text does not end");
		at++;
		if (text.size() == 1)
			fail(source, "an alternative is empty");
		return text;
	}

	std::string field()
	{
		const size_t begin = at;

		at = std::min(source.find_first_of("|{}", at), source.size());
		const std::string name(source.substr(begin, at - begin));
		if (name.empty() || name == "header:")
			fail(source, "an alternative is empty");
		const auto names = field_names();
		if (!name.starts_with("header:") && std::find(names.begin(), names.end(), name) == names.end())
			fail(source, "unknown field \"" + name + "\"");
		return name;
	}

	char separator()
	{
		if (!more())
			fail(source, "a { has no }");
		if (source[at] != '|' && source[at] != '}')
			fail(source, "expected | or } at \"" + std::string(source.substr(at)) + "\"");
		return source[at++];
	}

	std::string_view source;
	size_t at;
};

Text
first_of(const std::vector<std::string> &alternatives, const Message &message)
{
	for (const std::string &one : alternatives)
		if (one.front() == '\'')
			return one.substr(1);
		else if (Text value = field_of(message, one))
			return value;
	return {};
}

} // namespace

Template::Template(std::string_view text) : my_source(text)
{
	std::string literal;
	const auto flush = [&] {
		if (!literal.empty())
			pieces.push_back({std::exchange(literal, {}), {}});
	};

	for (size_t at = 0; at < text.size();)
	{
		const char c = text[at];
		const bool twice = at + 1 < text.size() && text[at + 1] == c;
		if ((c == '{' || c == '}') && twice)
		{
			literal += c;
			at += 2;
		}
		else if (c == '}')
			fail(text, "a } has no {");
		else if (c == '{')
		{
			flush();
			Alternatives alternatives(text, at + 1);
			pieces.push_back({{}, alternatives.read()});
			at = alternatives.end();
		}
		else
		{
			literal += c;
			at++;
		}
	}
	flush();
}

bool
Template::constant() const
{
	return std::all_of(pieces.begin(), pieces.end(), [](const Piece &piece) { return piece.fields.empty(); });
}

std::string
Template::prefix() const
{
	std::string result;

	for (auto piece = pieces.begin(); piece != pieces.end() && piece->fields.empty(); ++piece)
		result += piece->literal;
	return result;
}

Text
Template::apply(const Message &message, Escape escape) const
{
	std::string result;

	for (const Piece &piece : pieces)
	{
		if (piece.fields.empty())
		{
			result += piece.literal;
			continue;
		}
		const Text value = first_of(piece.fields, message);
		if (!value)
			return {};
		if (escape == Escape::none || &piece == &pieces.front())
			result += *value;
		else if (*value == "." || *value == "..")
			return {};
		else
			result += percent_encoded(*value);
	}
	return result;
}

} // namespace relay
