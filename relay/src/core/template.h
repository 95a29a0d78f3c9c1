// Texts with fields of a message in them: events.{aggregate_type|event_type}.
//
// Guarantees: an unknown field, an unclosed brace and an empty alternative are errors of the configuration, found when
// it is read. {a|b|'text'} is the first that is there and not empty; when none is, the template has no value for this
// message. {header:NAME} is a header of the message. {{ and }} are braces.
#pragma once

#include "core/message.h"

#include <string>
#include <string_view>
#include <vector>

namespace relay {

class Template {
public:
	Template() = default;
	explicit Template(std::string_view text); // throws std::invalid_argument

	[[nodiscard]] bool empty() const { return pieces.empty(); }
	[[nodiscard]] bool constant() const; // without a field
	// Nothing if a field has no value.
	[[nodiscard]] Text apply(const Message &message) const;
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
