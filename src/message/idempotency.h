// Idempotency: which of the messages to be enqueued were said before.
//
// Guarantees: per (queue, aggregate_id, idempotency_key), and per (queue, event_id), one
// message, for as long as keys are remembered, however many sessions try at once and in
// whatever isolation level. A repetition waits for the end of the transaction that was
// first and is then answered with its message; if that rolled back, it is the first.
// Within one batch the outcome is that of the elements enqueued one after the other.
#pragma once

#include "rows/call.h"

namespace outbox {

struct Keyed {
	const text *aggregate_id;    // nullptr = none
	const text *idempotency_key; // nullptr = none
	bool has_event_id;
	core::Uuid event_id;
	core::Uuid id;    // in: the id it gets if it is new; out: the first one's
	int duplicate_of; // out: -1 = new, else the element of this batch it repeats
	bool known;       // out: said before this batch
};

void remember_keys(Call *call, const text *queue, Keyed *items, int count);

} // namespace outbox
