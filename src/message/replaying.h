// Making a dead letter a new message, at most once.
//
// Guarantees: the row in outbox.replays decides. If two sessions replay one message, the second waits
// for the first. After a commit it gets P7005, after a rollback it replays, in every isolation level. A call that never
// waits (Call::wait) gets 55P03 for whatever an open transaction has: the replay, the dead letter, the key or its
// block, the queue, the subject of the payload.
#pragma once

#include "rows/call.h"
#include "rows/table.h"

namespace outbox {

// Which dead letters: all, or those that were not acknowledged, else P7005.
enum class Replayable { all, open };

// Returns the new message. due: nullptr = at once.
core::Uuid replay_message(Call *call, const core::Uuid &id, const TimestampTz *due, Replayable which = Replayable::all);

} // namespace outbox
