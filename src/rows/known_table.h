// What a session remembers of the extension's tables between calls: how they lie (layout.h),
// and how the entries of their indexes are made.
//
// Guarantees: what changed in the catalogue is surveyed again before the next use. What is in
// use stays as it is to the end of the call that uses it, which holds a lock on the table.
//
// Shape: the server's relation cache tells of changes by callback, in the middle of anything
// that takes a lock. What is outdated is dropped from the table then; it is freed when the last
// call that uses it frees its memory, after an ERROR as well.
#pragma once

#include "rows/layout.h"

namespace outbox {

struct KnownTable {
	MemoryContext context; // all of it lives there
	int users;
	bool outdated;
	int passed; // accesses that nothing stands against
	Layout layout;
	TupleDesc row_desc;      // a copy, which slots need not count references to
	IndexInfo **index_infos; // of its B-trees, expressions and predicates prepared; nullptr until
							 // it is written to
};

// What is known of a relation that the caller has locked and opened, for as long as the memory
// context lives. Raises what stands against the access.
KnownTable *know_table(const Shape &shape, Relation rel, int access, MemoryContext user);

// For the parent of leaves, which hot code does not lock.
void check_parent(const Shape &shape, Oid oid, int access);

// Once its indexes are open.
void know_indexes(KnownTable *known, Relation *indexes);

// The extension was dropped, and perhaps created again, in the middle of a call.
[[noreturn]] void parent_is_gone(Oid oid);

} // namespace outbox
