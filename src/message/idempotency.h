// Idempotency: which messages of an enqueue are duplicates.
//
// Guarantees: there is one message for each (queue, aggregate_id, idempotency_key) and for each
// (queue, event_id), as long as keys are remembered, with any number of concurrent sessions, in
// every isolation level. A duplicate waits for the end of the first transaction and returns its
// message; if that transaction rolls back, the duplicate becomes the first. A batch has the same
// outcome as its elements enqueued one after the other.
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

// Of a notice. It never waits: a key that an open transaction holds, which only a producer does that uses the key on
// purpose, is not remembered again. False if it is known.
bool remember_at_once(Call *call, const text *queue, Keyed *item);

} // namespace outbox
