// The kinds of sink that this program was built with.
#pragma once

#include "sinks/kind.h"

#include <span>
#include <string_view>

namespace relay {

std::span<const SinkKind> sink_kinds();            // those that were built
std::span<const std::string_view> missing_kinds(); // left out, since their library was missing

} // namespace relay
