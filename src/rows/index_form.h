// The form of an index: what a row of pg_index says, and whether it is that of an index of ours.
//
// Guarantees: an index is ours by its columns and their order, operator classes, collations, uniqueness, predicate and
// validity. Its name does not matter.
//
// Shape: each index of a table is compared with each that the install script makes, in the first call of each session.
// So only expressions are parsed, and the catalogs are asked last.
#pragma once

#include "rows/shapes.h"

namespace outbox {

struct IndexForm {
	Relation rel; // its table
	Form_pg_index form;
	const oidvector *classes;
	const oidvector *collations;
	const int2vector *options;
	List *expressions;
	Node *predicate;
};

// nullptr: it is gone.
IndexForm *read_index(Relation rel, Oid oid);

int key_count(const OwnIndex &own);
bool is_own_index(const IndexForm *index, const OwnIndex &own, bool is_primary);

// What it runs beside the server's own code, in words for a message; nullptr if nothing.
const char *users_code_of_index(const IndexForm *index);

} // namespace outbox
