// How long old data is kept: the row of outbox.retention, which outbox.set_retention writes.
#pragma once

#include "server/pg.h"

namespace outbox {

// Milliseconds; PG_INT64_MAX = without limit.
struct Policy {
	int64 keep_ms;
	int64 dead_letters_ms;
	const char *archive_schema; // nullptr = what is old is dropped
};

// The newest committed one. In a transaction.
Policy retention_policy();

} // namespace outbox
