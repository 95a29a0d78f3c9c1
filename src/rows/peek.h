// Reading rows by index for those who only look: views, and what they count.
//
// Guarantees: rows are those of the caller's snapshot; nothing is locked but the tables, for reading, so it works on a
// standby and in a read-only transaction; a walk looks at no more entries than it may, dead ones included. An index
// that is not over the columns it should be over is 55000.
#pragma once

#include "rows/probe.h"

namespace outbox {

// The keys of an index by their types, nothing for those that it lacks.
struct IndexKeys {
	Oid types[3];
};
constexpr IndexKeys by_id = {{UUIDOID}};

struct Peek {
	Table *table;
	Relation index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
};

// name: of the index; nullptr = the primary key.
void begin_peek(Peek *peek, Table *table, const char *name, const IndexKeys &types, int nkeys);
void start_peek(Peek *peek, ScanKey keys, int nkeys);
// Walk::tired: the entries are used up, and there may be more.
Walk next_within(Peek *peek, ScanDirection direction, int64 *entries);
void end_peek(Peek *peek);

} // namespace outbox
