// [[route]] and [[override]], read against the sinks that there are.
#pragma once

#include "config/sink_config.h"
#include "toml/section.h"

namespace relay {

std::shared_ptr<const Routes> read_routes(Section &root, const std::map<std::string, SinkConfig> &sinks,
										  std::span<const SinkKind> kinds);

// Fills SinkConfig::overrides; `kinds` knows the codes.
void read_overrides(Section &root, std::map<std::string, SinkConfig> &sinks, std::span<const SinkKind> kinds);

const SinkKind *kind_of(std::span<const SinkKind> kinds, std::string_view type);

} // namespace relay
