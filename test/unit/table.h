// What the documentation shows of the state machine: the transition table of
// docs/internals.md, line by line, and the diagram of docs/states.dot.
#pragma once

#include <string>
#include <vector>

namespace outbox::test {

std::vector<std::string> transition_table();

std::string diagram();

} // namespace outbox::test
