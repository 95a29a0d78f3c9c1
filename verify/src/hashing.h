// The hashes of core, which here cannot fail but by an exception.
#pragma once

#include <string_view>
#include <vector>

#include "core/canonical.h"
#include "core/merkle.h"

namespace outbox::verify {

core::Sha256 &sha();

core::Hash hash_bytes(std::string_view bytes);
core::Hash tree_root(const std::vector<core::Hash> &leaves);
core::Hash part_leaf(const core::SealedPart &part);

} // namespace outbox::verify
