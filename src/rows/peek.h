// Reading rows by index for those who only look: views, and what they count.
//
// Guarantees: rows are those of the caller's snapshot; nothing is locked but the tables, for reading, so it works on a
// standby and in a read-only transaction; a walk looks at no more entries than it may, dead ones included.
#pragma once

#include "rows/table.h"

namespace outbox {

struct Peek {
	Table *table;
	Relation index; // the table's
	IndexScanDesc scan;
	TupleTableSlot *slot;
};

// which: place of the index in the shape.
void begin_peek(Peek *peek, Table *table, int which, int nkeys);
void start_peek(Peek *peek, ScanKey keys, int nkeys);
// Walk::tired: the entries are used up, and there may be more.
Walk next_within(Peek *peek, ScanDirection direction, int64 *entries);
void end_peek(Peek *peek);

} // namespace outbox
