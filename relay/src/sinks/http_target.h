// The URL of a request, judged before anything is sent.
//
// Guarantees: a target is one that libcurl reads in the same way, since libcurl's own parser judges it: http or https,
// a host, and neither user nor password, which belong to the sink's settings.
#pragma once

#include "core/message.h"

#include <string>

namespace relay {

// Why the URL is not a target, or nothing.
Text url_problem(const std::string &url);

// scheme://host:port, the host in lower case; empty if it is not a URL.
std::string url_endpoint(const std::string &url);

} // namespace relay
