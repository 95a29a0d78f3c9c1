// The extension's configuration parameters.
#pragma once

#include "pg.h"

namespace outbox {

void define_settings();

// Length of a dated partition, milliseconds; 22023 when the setting is no interval
// between an hour and ten years.
int64 partition_interval_ms();

}	// namespace outbox
