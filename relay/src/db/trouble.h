// What is wrong with a database, as the log, /health/ready, the status page and --check say it.
//
// Guarantees: whether the database is away, or is there and refuses the relay, follows from the SQLSTATE and never from
// the words of a message, which the server may say in any language. For what an operator can mend there is a remedy.
#pragma once

#include <string>
#include <string_view>

namespace relay {

struct Trouble {
	std::string code; // SQLSTATE; empty if no server gave one
	std::string text; // on one line, redacted; with what to do

	// It answered, and does not take the relay until an operator changes something.
	[[nodiscard]] bool refused() const;
	// In one text: refused or not, and why.
	[[nodiscard]] std::string said() const;
};

// Of libpq's message with the verbosity PQERRORS_VERBOSE, which may be about several hosts: what the last one said
// counts.
Trouble connection_trouble(std::string_view verbose);
// The server is there and takes no writes.
Trouble read_only_trouble(std::string text);
// The server asks for a password, and there is none.
Trouble password_trouble(std::string text);

// What a connection or, once it is there, a statement of the relay needs; empty if that is not known.
std::string_view connection_remedy(std::string_view sqlstate);
std::string_view statement_remedy(std::string_view sqlstate);

// "text; remedy"
std::string with_remedy(std::string text, std::string_view remedy);

} // namespace relay
