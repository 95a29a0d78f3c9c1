// Kinds of sinks without sinks, one for each binding: the configuration is tested without brokers.
#pragma once

#include "config/config.h"

namespace relay::test {

std::span<const SinkKind> kinds();
std::span<const std::string_view> missing();

} // namespace relay::test
