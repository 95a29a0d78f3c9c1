// Dead letters that wait for a decision: the table outbox.dead.
//
// Guarantees: a message that ends as FAILED has its row from the same transaction on; replay takes it away;
// acknowledgement marks it once, whoever comes first. The ledger says why and when it died.
#pragma once

#include "rows/call.h"

namespace outbox {

// Nothing happens where the row is there already, by hand.
void add_dead(Call *call, const core::Uuid &id, const text *queue, TimestampTz at);
void remove_dead(Call *call, const core::Uuid &id);

enum class Acknowledged { now, before, never };
// Acknowledged::never: there is no such row.
Acknowledged acknowledge(Call *call, const core::Uuid &id, const text *by, const text *reason);

} // namespace outbox
