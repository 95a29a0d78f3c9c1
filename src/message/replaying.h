// Making a dead letter a new message, at most once.
//
// Guarantees: the row in outbox.replays decides. If two sessions replay one message, the second waits
// for the first. After a commit it gets P7005, after a rollback it replays, in every isolation level.
#pragma once

#include "rows/call.h"
#include "rows/table.h"

namespace outbox {

// Returns the new message. due: nullptr = at once. Wait::never: 55P03 if another session replays it.
core::Uuid replay_message(Call *call, const core::Uuid &id, const TimestampTz *due, Wait wait);

} // namespace outbox
