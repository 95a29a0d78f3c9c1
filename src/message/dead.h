// Dead letters that wait for a decision: the table outbox.dead.
//
// Guarantees: the transaction that ends a message as FAILED writes its row, and a replay removes it. It
// is acknowledged at most once. The ledger has the time and the cause of the failure.
#pragma once

#include "rows/call.h"

namespace outbox {

// Does nothing if the row already exists, written by hand.
void add_dead(Call *call, const core::Uuid &id, const text *queue, TimestampTz at);
// False: it was acknowledged.
bool remove_dead(Call *call, const core::Uuid &id);
bool is_dead(Call *call, const core::Uuid &id);

enum class Acknowledged { now, before, never };
// Acknowledged::never: there is no such row. now: *of is the queue of the message.
Acknowledged acknowledge(Call *call, const core::Uuid &id, const text *by, const text *reason, text **of);

} // namespace outbox
