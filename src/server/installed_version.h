// The version of the extension's SQL in this database. It may be older than the library: a server
// gets the library first, and then its databases are updated one after the other.
#pragma once

namespace outbox {

constexpr int no_version = -1;    // the extension is not installed
constexpr int other_version = -2; // the library does not support it

// Supported versions count from 0, the oldest.
int installed_version();

} // namespace outbox
