// The class of each code of a sink.
//
// Guarantees: a sink's codes, their classes and the reasons stand in one table, from which the program,
// the tests and docs/relay.md take them. The configuration changes the class of single codes. A code that
// is in neither is "try again", and known() is false of it, so that it is counted.
#pragma once

#include "core/answer.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace relay {

struct Code {
	std::string_view code;
	Fault fault;
	std::string_view why;
};

class Taxonomy {
public:
	// `codes` outlives this.
	explicit Taxonomy(std::span<const Code> codes);

	// The configuration's word on a code; false if the table does not have the code.
	bool change(std::string_view code, Fault fault);

	[[nodiscard]] Fault of(std::string_view code) const;
	[[nodiscard]] bool known(std::string_view code) const;

private:
	std::map<std::string, Fault, std::less<>> faults;
};

// Codes that the relay itself gives, whatever the sink: TIMEOUT, NO_ROUTE_CONFIGURED, ILLEGAL_DESTINATION ...
std::span<const Code> common_codes();

} // namespace relay
