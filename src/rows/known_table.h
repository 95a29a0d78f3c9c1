// What a session remembers of the extension's tables between calls: where their columns
// stand, how the entries of their indexes are made.
//
// Guarantees: only of tables that are just as the install script made them, whose index
// expressions and predicates are ours; what changed in the catalog is worked out anew. A
// description stays valid to the end of the transaction that uses it.
//
// Shape: the server's relation cache tells of changes by callback, in the middle of
// anything that takes a lock. What is outdated is marked then, and freed when the
// transaction is over and nobody can use it any more.
#pragma once

#include "rows/table.h"

namespace outbox {

struct KnownTable {
	Oid rel; // key of the hash table
	bool outdated;
	bool judged; // whose its parts are, also where not all are ours
	bool extended;
	uint64 foreign_indexes;
	EState *estate; // what is below lives in it; nullptr while it is only watched
	AttrNumber attno[max_columns];
	int nindexes;
	Oid *indexes;
	IndexInfo **index_infos; // their expressions and predicates are prepared
};

// nullptr: not known, or not what it was. The caller has locked the table.
const KnownTable *known_table(Oid rel);
// Before its indexes are listed: what changes from here on is noticed. nullptr: too many are watched.
KnownTable *watch_table(Oid rel);
// Remembers a table that was opened for writing, if it is a plain one and did not change
// since it is watched.
void remember_table(const Table *table);

} // namespace outbox
