// What one call of a verb works with: its tables, its queues' settings, the clock.
//
// Guarantees: begin_work refuses read-only transactions, recovery and parallel mode
// before anything is opened; between begin_work and end_work everything runs as the
// tables' owner in a security-restricted context, and where users made parts of a table
// (a CHECK, a default, an index expression: somebody's code) with search_path pinned;
// end_work makes what was written visible to the next command. After an ERROR the
// transaction's abort undoes all of it: a Work owns nothing but palloc'ed memory and
// counted references.
//
// Partitions: hot code locks leaves, never a parent. A leaf is looked up in the
// parent's bounds, locked, and looked up again: whatever changed in between is seen.
#pragma once

#include "core/ids.h"
#include "core/state.h"
#include "rows/table.h"

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
	int guc_level;   // of the pinned search_path, 0 = not pinned
	TimestampTz now; // wall clock at begin_work
	Table *pending_table;
	Leaf *leaves;
	Queue *queues;
	Table *queues_table;
	Oid states[core::records]; // of outbox.attempt_state; InvalidOid = not yet looked up
};

void begin_call(Call *call, const char *function);
// A Work inside a Work, for in_subtransaction: opens everything anew.
void begin_nested_call(Call *call, const Call *outer);
void end_call(Call *call);
// Goes on as if the call began anew: by the clock of now, with the queues as they are now.
void begin_next_command(Call *call);
// For functions that only read: no check for a writable transaction, and no new command.
void begin_reading(Call *call);
void end_reading(Call *call);

Oid relation_oid(const char *name);
// A partitioned table, share-locked. 42P01 when it is gone, or goes while we wait.
Relation open_parent(const char *name);
// For somebody's code that is to run: what it looks up by bare names is not the caller's.
// Returns the nest level that AtEOXact_GUC undoes.
int pin_search_path();
Table *pending(Call *call);
Table *open(Call *call, const Shape &shape, int access);
Table *open_as(Call *call, const Shape &shape, const char *name, int access);

// The partition that holds id. parent is messages_shape or attempts_shape.
Table *leaf_of(Call *call, const Shape &parent, const core::Uuid &id, int access);

// Ids must stay below this millisecond, the end of the dated partitions; INT64_MAX
// when there are none.
int64 partitions_end_ms();

constexpr int64 unix_epoch_offset_us = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

inline int64
unix_ms(TimestampTz time)
{
	return (time + unix_epoch_offset_us) / 1000;
}

inline core::Uuid
to_uuid(Datum datum)
{
	core::Uuid id;

	memcpy(id.bytes, DatumGetUUIDP(datum)->data, UUID_LEN);
	return id;
}

inline Datum
from_uuid(const core::Uuid &id)
{
	pg_uuid_t *copy = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));

	memcpy(copy->data, id.bytes, UUID_LEN);
	return UUIDPGetDatum(copy);
}

// Without a copy, for as long as the id stays where it is.
inline Datum
in_place(const core::Uuid &id)
{
	return UUIDPGetDatum(reinterpret_cast<const pg_uuid_t *>(&id));
}

inline int
compare(const core::Uuid &a, const core::Uuid &b)
{
	return memcmp(a.bytes, b.bytes, UUID_LEN);
}

inline bool
equal(const core::Uuid &a, const core::Uuid &b)
{
	return compare(a, b) == 0;
}

inline bool
equal(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		   memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

inline const char *
shown(const core::Uuid &id)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, from_uuid(id)));
}

} // namespace outbox
