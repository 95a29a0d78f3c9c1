// What one call of a verb works with: its tables, its queues' settings, the clock.
//
// Guarantees: begin_work refuses read-only transactions, recovery and parallel mode
// before anything is opened; between begin_work and end_work everything runs as the
// tables' owner in a security-restricted context; end_work makes what was written visible to the next command. After an
// ERROR the transaction's abort undoes all of it: a Work owns nothing but palloc'ed memory and counted references.
//
// Partitions: hot code locks leaves, never a parent. A leaf is looked up in the
// parent's bounds, locked, and looked up again: whatever changed in between is seen.
#pragma once

#include "core/ids.h"
#include "core/state.h"
#include "rows/table.h"
#include "server/values.h"

namespace outbox {

struct Queue;

// Between two neighbouring bounds of a partitioned table. It stays as it is while its leaf
// is locked.
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
	IdRange range; // that was asked for last
};

struct Call {
	EState *estate;
	Oid caller;
	int caller_context;
	TimestampTz now; // wall clock at begin_work
	Table *pending_table;
	Leaf *leaves;
	Queue *queues;
	Table *queues_table;
	Oid states[core::records]; // of outbox.attempt_state; InvalidOid = not yet looked up
};

void begin_call(Call *call, const char *function);
// A Call inside a Call, for in_subtransaction: it opens everything again.
void begin_nested_call(Call *call, const Call *outer);
void end_call(Call *call);
// Goes on as if the call began here: by the clock of now, with the queues as they are now.
void begin_next_command(Call *call);
// For functions that only read: no check for a writable transaction, and no new command.
void begin_reading(Call *call);
void end_reading(Call *call);

Oid relation_oid(const char *name);
// A partitioned table, share-locked. 42P01 when it is gone, or goes while we wait.
Relation open_parent(const char *name);
Table *pending(Call *call);
Table *open(Call *call, const Shape &shape, int access);
Table *open_as(Call *call, const Shape &shape, const char *name, int access);

// The partition that holds id. parent is messages_shape or attempts_shape. Where there is none,
// because somebody detached the DEFAULT partition: 55000, or nullptr.
Table *leaf_of(Call *call, const Shape &parent, const core::Uuid &id, int access);
Table *find_leaf(Call *call, const Shape &parent, const core::Uuid &id, int access);
// Which one it is now, not locked; InvalidOid where there is none.
Oid leaf_now(const Call *call, const Shape &parent, const core::Uuid &id);

// The end of the dated partitions; INT64_MAX when there are none.
int64 dated_end_ms();
// New ids must stay below this millisecond: that end or, where there is none, the time that is
// kept out of DEFAULT while its partition is made.
int64 partitions_end_ms();
// A CHECK that keeps a time out of the DEFAULT partition has a name that begins so, and then
// says from when to when: milliseconds, with '_' between them.
const char *exclusion_prefix(const char *parent);

} // namespace outbox
