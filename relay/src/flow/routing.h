// Where messages go; replaced as a whole by a reload.
#pragma once

#include "core/route.h"
#include "flow/outlet.h"

#include <map>
#include <memory>
#include <string>

namespace relay {

using Outlets = std::map<std::string, std::shared_ptr<Outlet>>;

struct Routing {
	std::shared_ptr<const Routes> routes;
	Outlets outlets;
};

} // namespace relay
