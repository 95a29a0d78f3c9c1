// See index_code.h.

#include "index_code.h"

namespace outbox {

IndexInfo *
index_info(Relation index)
{
	// A copy of the entry that remembers nothing: in the entry itself, an index that somebody
	// has open, a cursor say, keeps what it has through every invalidation.
	RelationData fresh = *index;

	fresh.rd_indexprs = NIL;
	fresh.rd_indpred = NIL;
	fresh.rd_indexcxt = CurrentMemoryContext;
	return BuildIndexInfo(&fresh);
}

void
prepare_domains_anew()
{
	// Nothing has changed in pg_constraint, but this is whom the server tells that something has.
	CallSyscacheCallbacks(CONSTROID, 0);
}

}	// namespace outbox
