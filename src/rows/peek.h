// Reading rows by index for the views and their counts.
//
// Guarantees: rows are those of the caller's snapshot. Only the tables are locked, for reading, so it works on a
// standby and in a read-only transaction. A walk reads at most the given number of entries, dead ones included.
#pragma once

#include "rows/table.h"

namespace outbox {

struct Peek {
	Table *table;
	Relation index; // the table's
	IndexScanDesc scan;
	TupleTableSlot *slot;
};

// which: the place of the index in the shape.
void begin_peek(Peek *peek, Table *table, int which, int nkeys);
void start_peek(Peek *peek, ScanKey keys, int nkeys);
// Walk::tired: the entries are used up, and there may be more.
Walk next_within(Peek *peek, ScanDirection direction, int64 *entries);
void end_peek(Peek *peek);

} // namespace outbox
