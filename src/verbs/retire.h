// Retention, and the audit event of each pair that it retires.
#pragma once

#include "upkeep/retention.h"

namespace outbox {

// retire_next(), and PARTITION_RETIRED in the same transaction if it retired one.
RetiredPair retire_and_record(int64 after_ms);

} // namespace outbox
