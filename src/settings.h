// The extension's configuration parameters.
//
// Guarantee: a value that cannot be used is refused when it is set. The check raises no
// ERROR of its own: a file that the postmaster reads again must not end it.
#pragma once

#include "pg.h"

namespace outbox {

void define_settings();

// outbox.partition_interval: length of a dated partition.
int64 partition_interval_ms();

// outbox.idempotency_window: how long a key is remembered, in milliseconds;
// PG_INT64_MAX = for ever.
int64 idempotency_window_ms();

}	// namespace outbox
