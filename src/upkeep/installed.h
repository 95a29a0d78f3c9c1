// Whether this database has the extension, in which version, and whether its tables are being filled.
#pragma once

#include "commit/shared.h"

namespace outbox {

// In a transaction: what this database holds.
Finding find_extension();

// In a transaction: whether a restore or a subscription seems to fill the tables. Rows and partitions
// of ours would then be in its way.
bool is_being_filled();

// In a transaction: whether something was enqueued into this outbox since the server started.
// Then no restore fills it. False if the library is not preloaded.
bool is_in_use();
// The same, or the extension was there when the server started.
bool is_no_restore();

} // namespace outbox
