// Handling messages inside the database, for the processes that handle and for maintain().
//
// Guarantees: a message is leased first, as by any worker. What its handler did and the attempt DISPATCHED are one
// transaction: both commit or neither does. An error undoes what the handler did, and is recorded as RETRYABLE, or as
// FAILED if its SQLSTATE is of class P8. A lease that was lost meanwhile undoes it, too, and records nothing. A handler
// that cannot run is not called, and costs no attempt: the leases are given back.
//
// Shape: the caller leases a batch in one transaction, then handles one message after the other, each in a transaction
// or subtransaction of its own. All leases of a batch end at about the same time.
#pragma once

#include "message/handler.h"

namespace outbox {

// A queue that has a handler, and something to handle.
struct HandledQueue {
	const char *name;
	Oid owner;        // of the handler
	ErrorData *error; // or why it cannot run
};

struct LeasedMessage {
	core::Uuid id;
	core::Uuid token;
	TimestampTz expires_at;
	HeapTuple message; // outbox.claimed
};

struct HandlerBatch {
	const char *queue;
	Oid owner; // of the handler
	int64 timeout_us;
	int64 lease_us;
	TupleDesc desc;
	LeasedMessage *messages;
	int count;
	int done; // of them
};

inline bool
is_over(const HandlerBatch *batch)
{
	return batch->done == batch->count;
}

// In a transaction. The results are in the context.
List *queues_to_handle(MemoryContext context);
// Leases up to `most` messages; none if the queue has no handler, or is paused. Raises why its handler cannot run.
void lease_batch(HandlerBatch *batch, const char *queue, int most, MemoryContext context);
// Those that are left are not handled.
void return_batch(HandlerBatch *batch);
void renew_batch(HandlerBatch *batch);
// Whether the next lease may end before its handler.
bool lacks_time(const HandlerBatch *batch);

// lost: the lease was. unable: the handler could not run, or its failure could not be recorded.
enum class Handling { handled, failed, lost, unable };

// What became of the next message. error: if unable.
struct Handled {
	Handling handling;
	ErrorData *error;
};

// In transactions of its own.
Handled handle_next(HandlerBatch *batch);
// In the transaction of the caller.
Handled handle_next_within(HandlerBatch *batch);

} // namespace outbox
