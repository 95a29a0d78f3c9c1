// What one call of the extension outbox_inbox works with: the partitions of one consumer. The extension needs
// no outbox in its database, so nothing here asks for one.
//
// Guarantees: whether an event is known is decided under its key's lock (rows/key_lock.h), by looking into all
// partitions of its consumer that may have it (closed.h), outside of any snapshot. So there is one row for each
// (consumer, event_id), with any number of sessions, in every isolation level, though each partition enforces it for
// itself alone. Which partitions there are is read under the same lock, and with the lock on the newest that writes to
// it held already. Rows of a partition, or of the list of partitions, that a
// transaction has not committed are waited for without the lock.
//
// Shape: partitions are children of inbox.events by inheritance, with a beginning and no end: an insertion always
// finds the newest. That one transaction made a partition is no reason for it to write there while others may not
// know it: it goes on with the older ones until it has committed.
#pragma once

#include "rows/key_lock.h"
#include "rows/table.h"
#include "server/values.h"

namespace outbox {

extern const Shape events_shape;
namespace events_col {
enum { consumed_at, event_id, processing_duration_ms, schema_version, consumer, source, event_type, payload };
}

// A table of schema inbox that is only probed, by its primary key.
struct Register {
	Relation rel;
	Relation index;
	Probe probe;
};

// A partition.
struct Shelf {
	int32 number;
	Table *table; // nullptr: not open, for it has none of the events
	Oid heap;
	Oid index;
	Probe probe;
};

struct Intake {
	EState *estate;
	Oid caller;
	int caller_context;
	TimestampTz now; // wall clock at its beginning, or after it has waited
	const text *consumer;
	int access; // to the partitions: only the newest gets new rows
	Register partitions;
	Register failures; // not open while the table is empty
	int32 consumer_id; // as the list of partitions has it
	bool made;         // the consumer was looked for, and made if there was none
	List *shelves;     // newest first
};

// What keeps a call from going on.
struct Obstacle {
	bool unknown;            // there is no such consumer
	TransactionId unsettled; // its end is waited for
	explicit operator bool() const { return unknown || TransactionIdIsValid(unsettled); }
};

void begin_intake(Intake *intake, const char *function, const text *consumer, int access);
void end_intake(Intake *intake);

// 1 to 63 bytes.
const text *consumer_argument(FunctionCallInfo fcinfo, int arg);

uint64 event_hash(const Intake *intake, const core::Uuid &id);
void lock_event(const Intake *intake, uint64 hash, KeyLock *held);

// Under the locks of these events. Opens the partitions that may have them now, and the newest.
Obstacle open_shelves(Intake *intake, const core::Uuid *const *ids, int count);
// In shelf->probe, which the caller rests; nullptr: in none of the partitions.
Shelf *find_event(Intake *intake, const core::Uuid &id);
// The row of an event that failed, in the probe of intake->failures.
bool has_failed(Intake *intake, const core::Uuid &id, bool *dead);

// Without any lock of an event: makes the consumer, or waits.
void overcome(Intake *intake, const Obstacle &obstacle);

} // namespace outbox
