// Exported seals (outbox.export_seals), one a line: a chain, and which of its seals the anchors stand for.
#pragma once

#include <functional>
#include <istream>
#include <optional>
#include <ostream>

#include "seal.h"

namespace outbox::verify {

// For each line. Lines without content are passed over. A refusal names the line.
void each_seal(std::istream &in, const std::function<void(const Seal &)> &take);

// Prints what holds. True: the anchors, if there are any, stand for all of the seals. first_previous: what the first of
// them must name as the hash before it.
bool check_chain(std::istream &in, const std::optional<core::Hash> &first_previous, Anchors &anchors,
				 std::ostream &out);

} // namespace outbox::verify
