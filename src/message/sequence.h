// Numbers per key: sequence_id in queues with ordering = 'numbered'.
//
// Guarantees: messages of one (queue, partition_key) carry 1, 2, 3 … in commit order
// and without gaps, for ever: the last number is kept in a separate table that neither
// retention nor a held snapshot affects. A number that was rolled back is used again. The
// next producer of a key waits for the end of the transaction that numbered last.
#pragma once

#include "rows/call.h"

namespace outbox {

struct Numbered {
	const text *partition_key;
	core::Uuid id;
	int64 sequence_id; // the answer
};

// Numbers the items, which belong to one queue, in their order. Keys are taken in the
// order of their digests, so that two batches never deadlock over them.
void take_numbers(Call *call, const text *queue, Numbered *items, int count);

} // namespace outbox
