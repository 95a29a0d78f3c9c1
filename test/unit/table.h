// The transition table as docs/internals.md shows it, line by line.
#pragma once

#include <string>
#include <vector>

namespace outbox::test {

std::vector<std::string> transition_table();

} // namespace outbox::test
