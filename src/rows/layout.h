// How a table of ours lies before us: where its columns stand, which of its indexes are which,
// and what else users made of it.
//
// Guarantees: an index is told by its columns and their order, operator classes, collations,
// uniqueness, predicate and validity, never by its name; the primary key, too. Whatever is not
// what the install script makes, and whatever of the users' the outbox cannot honour, is a
// Problem: nothing is read or written then.
#pragma once

#include "rows/shapes.h"

namespace outbox {

struct Layout {
	AttrNumber attno[max_columns]; // InvalidAttrNumber: a column that the database is too old for
	bool extended;                 // columns, CHECKs or NOT NULLs of users
	bool fallible;                 // a row may be refused for its own sake
	int nindexes;
	Oid *indexes;
	int own[max_own_indexes]; // the place of each in indexes
};

// "table outbox.NAME WHAT"
struct Problem {
	int sqlstate; // 0A000 stands against writing only; 0, against nothing
	const char *what;
	const char *detail;
	const char *hint;
};

// Fills the layout, whose indexes it allocates in the current context. Returns the problems
// that make it unusable (a list of Problem *).
List *survey(const Shape &shape, Relation rel, Layout *layout);

// Those that concern this access: triggers, rules, row level security. For parents of leaves,
// too.
List *survey_access(const Shape &shape, Relation rel, int access);

// Raises the first that stands against reading, or against writing, and tells whether another
// would stand against the other.
bool raise_first(const List *problems, Relation rel, bool writing);

// For SQL that uses a table: raises what stands against any use.
void require_sound(const Shape &shape, Oid oid);

// outbox.attempt_state of the schema.
Oid attempt_state_type(Oid schema);

} // namespace outbox
