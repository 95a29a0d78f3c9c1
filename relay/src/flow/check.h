// --check and --dry-run: what would happen, without claiming anything.
#pragma once

#include "config/config.h"

#include <cstddef>

namespace relay {

// Connects to everything, looks for what routes name, and prints what it finds and what it would do with so many
// messages, oldest first. False if something is not as it must be.
bool check(const Config &config, size_t messages);

// One JSON object a line for each pending message: where it would go, and how. False if one cannot be read.
bool dry_run(const Config &config);

} // namespace relay
