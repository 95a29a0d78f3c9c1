// See index_code.h.

#include "rows/index_code.h"

namespace outbox {

namespace {

// Skips what text begins with; nullptr if it does not.
const char *
after(const char *text, const char *beginning)
{
	size_t length = strlen(beginning);

	return text != nullptr && strncmp(text, beginning, length) == 0 ? text + length : nullptr;
}

// How full its pages are, say, is the user's business. A B-tree has no option with a bracket.
const char *
after_options(const char *text)
{
	const char *options = after(text, " WITH (");
	const char *end = options != nullptr ? strchr(options, ')') : nullptr;

	return end != nullptr ? end + 1 : text;
}

const char *
after_name(const char *definition, Relation index, bool unique)
{
	Oid rel = index->rd_index->indrelid;

	return after(definition,
				 psprintf("CREATE %sINDEX %s ON %s USING btree ", unique ? "UNIQUE " : "",
						  quote_identifier(RelationGetRelationName(index)),
						  quote_qualified_identifier(get_namespace_name(get_rel_namespace(rel)), get_rel_name(rel))));
}

} // namespace

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

bool
is_own_index(const Shape &shape, Relation index)
{
	const char *definition =
		TextDatumGetCString(DirectFunctionCall1(pg_get_indexdef, ObjectIdGetDatum(RelationGetRelid(index))));

	for (int i = 0; i < shape.nindexes; i++)
	{
		const OwnIndex &own = shape.indexes[i];
		const char *rest = after_options(after(after_name(definition, index, own.unique), own.keys));

		if (rest != nullptr && strcmp(rest, own.predicate) == 0)
			return true;
	}
	return false;
}

void
prepare_indexes_anew(Oid rel)
{
	Relation table = table_open(rel, AccessShareLock);
	List *oids = RelationGetIndexList(table);
	ListCell *cell;

	foreach (cell, oids)
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);

		// For an entry that is open elsewhere, which outlives its invalidation. Others have copies only.
		index->rd_indexprs = NIL;
		index->rd_indpred = NIL;
		index_close(index, AccessShareLock);
		RelationCacheInvalidateEntry(lfirst_oid(cell));
	}
	list_free(oids);
	table_close(table, AccessShareLock);
}

void
prepare_domains_anew()
{
	// Nothing has changed in pg_constraint, but this is whom the server tells that something has.
	CallSyscacheCallbacks(CONSTROID, 0);
}

} // namespace outbox
