// What the configuration has to know of a kind of sink, and how one is made.
#pragma once

#include "toml/section.h"
#include "core/route.h"
#include "sinks/sink.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace relay {

struct SinkKind {
	std::string_view type; // as in the configuration
	Binding binding;
	std::string_view default_topic; // a template, where the relay's own default has no sense (HTTP needs a URL: empty)
	std::span<const Code> (*codes)();
	// Reads the kind's own values of the section and returns what makes the sink. Connects to nothing.
	std::function<std::unique_ptr<Sink>()> (*read)(Section &section, const SinkSettings &settings);
	// The defaults of this kind.
	SinkSettings defaults;
};

} // namespace relay
