// The layout of a table of the extension: the places of its columns, its indexes, and what users
// added to it.
//
// Guarantees: an index, also a primary key, is recognized by its columns and their order, operator
// classes, collations, uniqueness, predicate and validity, never by its name. Anything that differs
// from what the install script makes, and anything of a user that the outbox cannot honour, is a
// Problem: then nothing is read or written.
#pragma once

#include "rows/shapes.h"

namespace outbox {

struct Layout {
	AttrNumber attno[max_columns]; // InvalidAttrNumber: the database has an older version, without this column
	bool extended;                 // columns, CHECKs or NOT NULLs of users
	bool fallible;                 // a single row may be refused
	int nindexes;
	Oid *indexes;
	int own[max_own_indexes]; // the place of each in indexes
};

// "table outbox.NAME WHAT"
struct Problem {
	int sqlstate; // 0A000 prevents writing only; 0 prevents nothing
	const char *what;
	const char *detail;
	const char *hint;
};

// Fills the layout, whose indexes it allocates in the current context. Returns the problems
// that make it unusable (a list of Problem *).
List *survey(const Shape &shape, Relation rel, Layout *layout);

// The problems of an access: triggers, rules, row level security. Also for parents of leaves.
List *survey_access(const Shape &shape, Relation rel, int access);

// Raises the first that prevents reading, or writing. Returns whether there are others.
bool raise_first(const List *problems, Relation rel, bool writing);

// For SQL that uses a table: raises any problem.
void require_sound(const Shape &shape, Oid oid);

// outbox.attempt_state of the schema.
Oid attempt_state_type(Oid schema);

} // namespace outbox
