// The codes of all sinks as a page of the documentation: docs/relay-codes.md is what this prints.
#pragma once

#include <ostream>

namespace relay {

void print_codes(std::ostream &out);

} // namespace relay
