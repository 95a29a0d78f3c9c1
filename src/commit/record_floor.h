// The times of records, created_at of messages and attempts and at of audit events, and their floor.
//
// Guarantees: once publish_floor(F) has returned, no transaction that gets its id later records anything with a time
// before F, whatever the clock does, also after a crash, on a promoted standby and without preloading. A floor is never
// lowered. A published floor stays although its transaction is rolled back.
//
// Shape: the truth is the sequence outbox.seal_floor, whose value the server logs and which no rollback brings back.
// Its WAL lies before that of the seal that relies on it, so a server that has the seal has the floor. The slot of the
// database in shared memory has a copy, so that most records need not read the sequence. A copy of 0 says nothing: then
// the sequence is read.
#pragma once

#include "server/pg.h"

namespace outbox {

// The time of a record that is written now: that of the clock, but not before the floor, nor before the last one of
// this transaction. It gives the transaction its id first. clock: what the clock said, or nullptr.
TimestampTz record_time(TimestampTz *clock = nullptr);

// The floor as the sequence has it.
TimestampTz published_floor();
// Raises the floor, also for the rest of this transaction. Not concurrently: a sealer holds the lock of sealers, and
// the trigger on outbox.seals runs in a restore.
void publish_floor(TimestampTz floor);
// For a process that starts: from then on the copy in shared memory says it all.
void share_floor();

} // namespace outbox
