// Texts with fields of a message in them: events.{aggregate_type|event_type}.
//
// Guarantees: an unknown field, an unclosed brace and an empty alternative are errors of the configuration, found when
// it is read. {a|b|'text'} is the first that is there and not empty; when none is, the template has no value for this
// message. {header:NAME} is a header of the message. {{ and }} are braces, '' within a quoted text is a quote.
// In a URL a value cannot leave its place: it is percent-encoded, and . and .. are no values.
#pragma once

#include "core/message.h"

#include <string>
#include <string_view>
#include <vector>

namespace relay {

// How values go into the text. `url`: percent-encoded, but for a field at the very beginning, which holds a URL itself.
enum class Escape { none, url };

class Template {
public:
	Template() = default;
	explicit Template(std::string_view text); // throws std::invalid_argument

	[[nodiscard]] bool empty() const { return pieces.empty(); }
	[[nodiscard]] bool constant() const;      // without a field
	[[nodiscard]] std::string prefix() const; // what stands before the first field
	// Nothing if a field has no value.
	[[nodiscard]] Text apply(const Message &message, Escape escape = Escape::none) const;
	[[nodiscard]] const std::string &source() const { return my_source; }
	bool operator==(const Template &other) const { return my_source == other.my_source; }

private:
	struct Piece {
		std::string literal;
		std::vector<std::string> fields; // alternatives; empty: the literal
	};
	std::vector<Piece> pieces;
	std::string my_source;
};

bool glob(std::string_view pattern, std::string_view text);

} // namespace relay
