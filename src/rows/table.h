// Direct access to the extension's tables: no planner, no executor nodes.
//
// Guarantees, for every row written here:
//  - all indexes are maintained, also partial and expression indexes of users; the index itself
//    enforces uniqueness;
//  - columns of users get their defaults or generated values; NOT NULL and CHECK constraints of
//    users hold; columns are found by name;
//  - what needs the executor (triggers that would fire, rules, row level security, deferrable and
//    exclusion constraints) and what would run code of users as the tables' owner is refused with
//    0A000, and an index of the extension that was changed with 55000, before anything is read or
//    written.
//
// A table that is just as the install script made it skips the checks of its own constraints.
#pragma once

#include "rows/known_table.h"
#include "rows/probe.h"

namespace outbox {

struct Table {
	Table *next; // of a Call
	const Shape *shape;
	Relation rel;
	EState *estate;
	const KnownTable *known;
	const AttrNumber *attno;
	int access;
	ResultRelInfo *result_info; // if users extended the table
	Relation *indexes;          // all if it is written to, else those opened so far
	IndexInfo **index_infos;
	TupleTableSlot *lock_slot; // or nullptr
	TupleTableSlot *changed;   // or nullptr: the row that an update writes
	Probe *id_probe;           // or nullptr

	Datum get(TupleTableSlot *slot, int column, bool *isnull) const
	{
		*isnull = true;
		return attno[column] == InvalidAttrNumber ? static_cast<Datum>(0) : slot_getattr(slot, attno[column], isnull);
	}
};

// For a relation of that shape that the caller has locked and opened. The lock lasts to the end
// of the transaction.
Table *wrap_table(const Shape &shape, Relation rel, int access, EState *estate);
void close_table(Table *table);

// Whether columns, checks or indexes of users may refuse a single row.
bool has_foreign_parts(const Table *table);

// By its place in the shape.
Relation own_index(Table *table, int which);

inline Relation
primary_index(Table *table)
{
	return own_index(table, primary_key);
}

inline void
begin_probe(Probe *probe, Table *table, Relation index, int nkeys)
{
	begin_probe(probe, table->rel, index, nkeys);
}

inline bool
find_in_latest_snapshot(Table *table, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot)
{
	return find_in_latest_snapshot(table->rel, index, keys, nkeys, slot);
}

// A look-up by primary key, with a probe that the table keeps. Rest it afterwards.
Probe *probe_id(Table *table, const core::Uuid &id);

// A text of a row, in memory of its own; nullptr = NULL.
text *copied_text(const Table *table, TupleTableSlot *slot, int column);

// A new row, all NULL, for set() and insert_rows(). Columns that an older version of the database
// does not have are left out.
TupleTableSlot *new_row(Table *table);
// The same for the next update: the table keeps it.
TupleTableSlot *changed_row(Table *table);
void set(const Table *table, TupleTableSlot *row, int column, Datum value);
void set_text(const Table *table, TupleTableSlot *row, int column, const text *value); // nullptr = NULL
void set_null(const Table *table, TupleTableSlot *row, int column);

// Sets tts_tid of each row. The rows can be used again.
void insert_rows(Table *table, TupleTableSlot **rows, int count);

// Writes a row for each item, in runs of one table: fill(table, row, item) into table_of(item).
template <typename Item, typename TableOf, typename Fill>
void
write_rows(Item *const *items, int count, const TableOf &table_of, const Fill &fill)
{
	constexpr int most = 500; // at a time: bounds memory, and keeps the gain of a multi-insert
	TupleTableSlot *rows[most];

	for (int done = 0, n; done < count; done += n)
	{
		Table *table = table_of(items[done]);

		for (n = 0; n < most && done + n < count && table_of(items[done + n]) == table; n++)
		{
			rows[n] = new_row(table);
			fill(table, rows[n], items[done + n]);
		}
		insert_rows(table, rows, n);
		for (int i = 0; i < n; i++)
			ExecDropSingleTupleTableSlot(rows[i]);
	}
}

// What became of an attempt to change a row.
enum class Changed {
	done,
	busy,    // another transaction holds it and we did not wait
	outdated // the row was changed, or we waited for it: look again
};

enum class Wait { never, for_row };

// Locks exactly that version, as an update would.
Changed hold_row(Table *table, ItemPointer tid, Wait wait);
Changed update_row(Table *table, ItemPointer tid, TupleTableSlot *row, Wait wait);
// The same for a row that this transaction has locked, or whose guard it has locked. 40001 if it was changed all the
// same.
void update_own_row(Table *table, ItemPointer tid, TupleTableSlot *row);
Changed delete_row(Table *table, ItemPointer tid, Wait wait);
// 55P03, for a caller that cannot pass a busy row by.
[[noreturn]] void raise_busy(const Table *table);

} // namespace outbox
