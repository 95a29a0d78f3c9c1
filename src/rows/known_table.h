// What a session remembers of the extension's tables between calls: their layout (layout.h), and
// how their index entries are made.
//
// Guarantees: a table that changed in the catalogs is surveyed again before its next use. What a
// call uses does not change until the call ends: the call holds a lock on the table.
//
// Shape: the relation cache reports changes by callback, at any place that takes a lock. The
// callback removes an outdated entry from the hash table. The entry is freed together with the
// memory of the last call that uses it, also after an ERROR.
#pragma once

#include "rows/layout.h"

namespace outbox {

struct KnownTable {
	MemoryContext context; // all of it lives there
	int users;
	bool outdated;
	int passed; // the accesses that nothing prevents
	Layout layout;
	TupleDesc row_desc;      // a copy: slots need not count references to it
	IndexInfo **index_infos; // of its B-trees, with expressions and predicates prepared; nullptr
							 // until the first write
};

// For a relation that the caller has locked and opened, as long as the memory context lives.
// Raises what prevents the access.
KnownTable *know_table(const Shape &shape, Relation rel, int access, MemoryContext user);

// For the parent of leaves, which hot code does not lock.
void check_parent(const Shape &shape, Oid oid, int access);

// Once its indexes are open.
void know_indexes(KnownTable *known, Relation *indexes);

// The extension was dropped, and perhaps created again, in the middle of a call.
[[noreturn]] void parent_is_gone(Oid oid);

} // namespace outbox
