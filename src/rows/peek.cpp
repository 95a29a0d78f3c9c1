// See peek.h.

#include "rows/peek.h"

#include "server/compat.h"

namespace outbox {

namespace {

Oid
index_named(Relation table, const char *name)
{
	return name == nullptr ? primary_key_index(table) : get_relname_relid(name, RelationGetNamespace(table));
}

bool
is_over(Relation index, Relation table, const IndexKeys &keys)
{
	bool is = index->rd_rel->relkind == RELKIND_INDEX && index->rd_index->indrelid == RelationGetRelid(table) &&
			  index->rd_index->indisvalid && index->rd_rel->relam == BTREE_AM_OID;

	for (int i = 0; is && i < static_cast<int>(lengthof(keys.types)) && OidIsValid(keys.types[i]); i++)
		is = i < index->rd_index->indnkeyatts && index->rd_opcintype[i] == keys.types[i];
	return is;
}

[[noreturn]] void
missing_index(const Table *table, const char *name)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("table outbox.%s has no valid %s", RelationGetRelationName(table->rel),
						   name == nullptr ? "primary key" : psprintf("index %s", name)),
					errhint("SELECT * FROM outbox.check() shows what is missing.")));
}

} // namespace

void
begin_peek(Peek *peek, Table *table, const char *name, const IndexKeys &keys, int nkeys)
{
	Oid oid = index_named(table->rel, name);

	peek->table = table;
	peek->index = OidIsValid(oid) ? try_index_open(oid, AccessShareLock) : nullptr;
	if (peek->index == nullptr || !is_over(peek->index, table->rel, keys))
		missing_index(table, name);
	peek->scan = begin_index_scan(table->rel, peek->index, GetActiveSnapshot(), nkeys);
	peek->slot = table_slot_create(table->rel, nullptr);
}

void
start_peek(Peek *peek, ScanKey keys, int nkeys)
{
	index_rescan(peek->scan, keys, nkeys, nullptr, 0);
}

Walk
next_within(Peek *peek, ScanDirection direction, int64 *entries)
{
	while ((*entries)-- > 0)
	{
		if (index_getnext_tid(peek->scan, direction) == nullptr)
			return Walk::end;
		CHECK_FOR_INTERRUPTS();
		if (index_fetch_heap(peek->scan, peek->slot))
			return Walk::row;
	}
	return Walk::tired;
}

void
end_peek(Peek *peek)
{
	ExecDropSingleTupleTableSlot(peek->slot);
	index_endscan(peek->scan);
	index_close(peek->index, NoLock);
}

} // namespace outbox
