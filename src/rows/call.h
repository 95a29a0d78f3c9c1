// What one call of a verb works with: its tables, its queues' settings, the clock.
//
// Guarantees: begin_call() refuses read-only transactions, recovery and parallel mode before it
// opens a table. From there to end_call() everything runs as the tables' owner in a
// security-restricted context. end_call() makes the changes visible to the next command. After an
// ERROR the transaction's abort undoes everything: a Call owns only palloc'ed memory and counted
// references.
//
// Partitions: hot code locks leaves, never a parent. It looks the leaf up in the parent's bounds,
// locks it, and looks it up again, so it sees any change in between.
#pragma once

#include "core/ids.h"
#include "core/state.h"
#include "rows/table.h"
#include "server/values.h"

namespace outbox {

struct Queue;

// The ids between two neighbouring bounds of a partitioned table. It does not change while the
// leaf is locked.
struct IdRange {
	bool has_from;
	bool has_below;
	core::Uuid from;
	core::Uuid below;
};

struct Leaf {
	Leaf *next;
	const Shape *parent;
	Table *table;
	IdRange range; // of the last look-up
};

struct Call {
	EState *estate;
	Oid caller;
	int caller_context;
	TimestampTz now;      // wall clock at its beginning
	TimestampTz recorded; // created_at of what it enqueues (begin_enqueueing()); 0 = not yet known
	Table *tables;        // all that it opened
	Table *pending_table;
	Leaf *leaves;
	Queue *queues;
	Wait wait;                 // for_row; never: 55P03 instead of waiting for another transaction's row, key or queue
	Oid states[core::records]; // of outbox.attempt_state; InvalidOid = not yet looked up
	Call *outer;               // of a nested call, or nullptr
	void *noted;               // of message/audit_notes.h
	void (*at_end)(Call *);    // called by end_call(), or nullptr
};

void begin_call(Call *call, const char *function);
// A Call inside a Call, in a subtransaction: it opens everything again.
void begin_nested_call(Call *call, Call *outer);
void end_call(Call *call);
// Continues as if the call began here: reads the clock and the queues again.
void begin_next_command(Call *call);
// For functions that only read: does not require a writable transaction, and begins no new command.
void begin_reading(Call *call);
void end_reading(Call *call);

// 3F000 when it is gone, or has another name.
Oid outbox_schema();
Oid relation_oid(const char *name);
Oid relation_oid_in(const char *schema, const char *name);
// A partitioned table, under ACCESS SHARE. 42P01 if it does not exist, or is dropped while we wait.
Relation open_parent(const char *name);
// Tables stay open to the end of the call.
Table *pending(Call *call);
Table *open(Call *call, const Shape &shape, int access);
Table *open_as(Call *call, const Shape &shape, const char *name, int access);

// The partition that holds the id. parent is messages_shape, attempts_shape or audit_events_shape. If there is none,
// because the DEFAULT partition was detached, leaf_of() raises 55000 and find_leaf() returns nullptr.
Table *leaf_of(Call *call, const Shape &parent, const core::Uuid &id, int access);
Table *find_leaf(Call *call, const Shape &parent, const core::Uuid &id, int access);
// The same without a lock; InvalidOid if there is none.
Oid leaf_now(const Call *call, const Shape &parent, const core::Uuid &id);

// New ids must stay below this millisecond: the end of the dated partitions or, without any, the time that a
// CHECK keeps out of DEFAULT while a partition is made; else INT64_MAX.
int64 partitions_end_ms();
// The name of such a CHECK begins with this. Then follow the first and the last millisecond, with
// '_' between them.
const char *exclusion_prefix(const char *parent);

} // namespace outbox
