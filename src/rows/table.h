// Direct access to the extension's tables: no planner, no executor nodes.
//
// Guarantees, for every row written here:
//  - all indexes are kept up, user-made ones, partial and expression indexes
//    included; unique ones are enforced by the index itself;
//  - user-made columns get their defaults or generated values, NOT NULL and CHECK
//    hold, added or dropped columns are survived: columns are found by name;
//  - what cannot be honoured without the executor (triggers that would have to
//    fire, rules, row level security, deferrable or exclusion constraints) and what
//    would run code of users as the tables' owner is refused with 0A000, and an index
//    of ours that is not as we made it with 55000, before anything is read or written.
//
// The common case, a table just as the install script made it, pays for none of
// the checks that its own constraints would repeat.
#pragma once

#include "rows/known_table.h"
#include "rows/probe.h"

namespace outbox {

struct Table {
	const Shape *shape;
	Relation rel;
	EState *estate;
	const KnownTable *known;
	const AttrNumber *attno;
	int access;
	ResultRelInfo *result_info; // where the table is extended
	Relation *indexes;          // all of them when written to, else those opened so far
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

// For a relation of that shape that the caller has locked and opened. The lock is kept
// until the end of the transaction.
Table *wrap_table(const Shape &shape, Relation rel, int access, EState *estate);
void close_table(Table *table);

// A user added columns, checks or indexes, which may refuse a single row.
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

// By the primary key, with a probe that the table keeps for the next message: rest it.
Probe *probe_id(Table *table, const core::Uuid &id);

// A new row, all NULL, to be filled by set() and written by insert_rows. A column that the
// database is too old for is left out.
TupleTableSlot *new_row(Table *table);
// The same for the next update: the table keeps it.
TupleTableSlot *changed_row(Table *table);
void set(const Table *table, TupleTableSlot *row, int column, Datum value);
void set_text(const Table *table, TupleTableSlot *row, int column, const text *value); // nullptr = NULL
void set_null(const Table *table, TupleTableSlot *row, int column);

// row->tts_tid is set. Rows are reusable afterwards.
void insert_rows(Table *table, TupleTableSlot **rows, int count);

// What became of an attempt to change a row.
enum class Changed {
	done,
	busy,    // another transaction holds it and we did not wait
	outdated // not changed: the row was, or we waited for it; look again
};

enum class Wait { never, for_row };

// Locks exactly that version, as an update would.
Changed hold_row(Table *table, ItemPointer tid, Wait wait);
Changed update_row(Table *table, ItemPointer tid, TupleTableSlot *row, Wait wait);
Changed delete_row(Table *table, ItemPointer tid, Wait wait);

} // namespace outbox
