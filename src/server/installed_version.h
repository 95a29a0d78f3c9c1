// The version of the extension's SQL in this database, which may be older than the library: a
// server gets the library first, and then one database after the other is updated.
#pragma once

namespace outbox {

constexpr int no_version = -1;    // the extension is not installed
constexpr int other_version = -2; // the library does not serve it

// Versions that are served count from 0, the oldest.
int installed_version();

} // namespace outbox
