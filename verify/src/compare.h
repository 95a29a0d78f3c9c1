// Two exports of the leaves of one seal (outbox.seal_leaves): which rows differ.
#pragma once

#include <istream>
#include <ostream>

namespace outbox::verify {

// Prints each difference. True: there is none. Unreadable: a line is not one of such an export, or comes twice.
bool compare_leaves(std::istream &a, std::istream &b, std::ostream &out);

} // namespace outbox::verify
