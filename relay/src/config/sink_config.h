// A sink as the configuration has it: what it takes to make one, and whether it is still the same after a reload.
#pragma once

#include "core/route.h"
#include "core/taxonomy.h"
#include "sinks/registry.h"
#include "sinks/sink.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace relay {

// A sink that can be made: the registry (sinks/registry.h) reads the rest of its table.
struct SinkConfig {
	SinkSettings settings;
	Binding binding = Binding::plain;
	std::map<std::string, Fault> overrides;
	std::string fingerprint; // equal: the same sink goes on after a reload
	std::function<std::unique_ptr<Sink>()> make;
	std::function<Taxonomy()> taxonomy; // with the overrides
};

} // namespace relay
