// Numbers per key: sequence_id in queues with ordering = 'numbered'.
//
// Guarantees: messages of one (queue, partition_key) have the numbers 1, 2, 3 … in commit order and
// without gaps. The last number is kept in a separate table, so retention does not reset it and a
// held snapshot does not slow it down. A number that was rolled back is used again. The next
// producer of a key waits for the end of the transaction that took the last number.
#pragma once

#include "rows/call.h"
#include "server/digest.h"

namespace outbox {

struct Numbered {
	const text *partition_key;
	core::Uuid id;
	bool is_message; // else the number before it stays that of the key's last message

	// the answer
	int64 sequence_id;
	Digest digest;
	bool first;        // of its key among the items
	bool has_before;   // an earlier message of the key, when first
	core::Uuid before; // the last one
	bool look_again;   // for order.h
};

// Numbers the items of one queue in their order. Keys are taken in the order of their digests, so
// that two batches never deadlock. A call that never waits gets 55P03 for a key whose last number is not settled.
void take_numbers(Call *call, const text *queue, Numbered *items, int count);

} // namespace outbox
