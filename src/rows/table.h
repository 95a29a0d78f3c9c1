// Direct access to the extension's tables: no planner, no executor nodes.
//
// Guarantees, for every row written here:
//  - all indexes are kept up, user-made ones, partial and expression indexes
//    included; unique ones are enforced by the index itself;
//  - user-made columns get their defaults or generated values, NOT NULL and CHECK
//    hold, added or dropped columns are survived: columns are found by name;
//  - what cannot be honoured without the executor (triggers that would have to
//    fire, rules, row level security, deferrable or exclusion constraints) is
//    refused with 0A000 before anything is written;
//  - it all runs as the tables' owner in a security-restricted context, because a
//    user-made CHECK or index expression is somebody's code (index_code.h: by whose
//    names).
//
// The common case, a table just as the install script made it, pays for none of
// the checks that its own constraints would repeat.
#pragma once

#include "core/ids.h"
#include "rows/shapes.h"

namespace outbox {

struct KnownTable;
struct Probe;

struct Table {
	const Shape *shape;
	Relation rel;
	EState *estate;
	AttrNumber attno[max_columns];
	int access;
	bool extended;              // user-made columns or checks
	uint64 foreign_indexes;     // bit by place in indexes, in place of ours or beside them
	ResultRelInfo *result_info; // when extended
	int nindexes;               // all of them when written to, else the one opened last
	Relation *indexes;
	IndexInfo **index_infos;
	Probe *id_probe; // or nullptr

	Datum get(TupleTableSlot *slot, int column, bool *isnull) const
	{
		return slot_getattr(slot, attno[column], isnull);
	}
};

// For a relation of that shape that the caller has locked and opened. The lock is kept
// until the end of the transaction. known is what known_table() says of it; if that is nothing
// and it is opened for writing, search_path must be pinned.
Table *wrap_table(const Shape &shape, Relation rel, int access, const KnownTable *known, EState *estate);
void close_table(Table *table);

// Refuses a table, or the parent of a leaf, with something that this access would have
// to honour and cannot.
void refuse_what_is_passed_over(const Shape &shape, Relation rel, int access);

// Somebody added columns, checks or indexes: a single row may be refused by them.
bool has_foreign_parts(const Table *table);

// outbox.attempt_state of the schema.
Oid attempt_state_type(Oid schema);

Relation primary_index(Table *table);
Relation named_index(Table *table, const char *name);

// A new row, all NULL, to be filled by set() and written by insert_rows.
TupleTableSlot *new_row(Table *table);
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
