// What code the indexes of a table run, and by whose names.
//
// The server's relation cache keeps the expressions and the predicate of an index as they
// were prepared first in the session: SQL functions written out, by the search_path that was
// set then. If that was the caller's, and we work as the owner, the caller's functions would
// run with the owner's rights.
//
// Guarantees: what is prepared here is prepared by the search_path of now, whatever the
// session did before; an index counts as ours only if all of its definition is ours, under
// whatever name.
#pragma once

#include "rows/table.h"

namespace outbox {

// As BuildIndexInfo, with nothing that was prepared earlier.
IndexInfo *index_info(Relation index);
// To be asked with search_path pinned.
bool is_own_index(const Shape &shape, Relation index);
// For SQL that uses a table of ours: from here on its indexes are prepared anew.
void prepare_indexes_anew(Oid rel);
// Likewise the CHECKs of all domains, which the session keeps in the same way.
void prepare_domains_anew();

} // namespace outbox
