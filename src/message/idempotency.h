// Idempotency: which of the messages to be enqueued are duplicates.
//
// Guarantees: one message for each (queue, aggregate_id, idempotency_key) and for each
// (queue, event_id), as long as keys are remembered, for any number of concurrent sessions, in
// every isolation level. A duplicate waits for the end of the transaction that was
// first and then returns its message; if that transaction rolled back, it becomes the first.
// A batch has the same outcome as its elements enqueued one after the other.
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
	bool known;       // out: enqueued before this batch
};

void remember_keys(Call *call, const text *queue, Keyed *items, int count);

} // namespace outbox
