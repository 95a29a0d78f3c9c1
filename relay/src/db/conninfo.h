// Connection strings of libpq, and what holds where they say nothing.
//
// Guarantees: a dead peer is noticed within half a minute. Certificates are verified by default: where the connection
// string and the environment say nothing of sslmode and a host is not local, it is verify-full, against the system's
// authorities.
#pragma once

#include "core/secret.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace relay {

// Parameters for PQconnectdbParams() that stand before the connection string, so that it may change them.
std::vector<std::pair<const char *, std::string>> connection_defaults(const Secret &dsn);

// Nothing, or why libpq does not take the connection string. Registers the passwords in it as secrets.
std::optional<std::string> problem_of(const Secret &dsn);

} // namespace relay
