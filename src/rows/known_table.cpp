// See known_table.h.

#include "rows/known_table.h"

namespace outbox {

namespace {

// Leaves of the ledgers are many in a database that keeps them for years; a session that
// meets more than that works the others out each time.
constexpr long most_tables = 256;

HTAB *tables;
bool some_outdated;

// Outdated is any that might be: InvalidOid concerns all.
void
relation_changed(Datum, Oid rel)
{
	HASH_SEQ_STATUS all;
	KnownTable *known;

	if (OidIsValid(rel))
	{
		known = static_cast<KnownTable *>(hash_search(tables, &rel, HASH_FIND, nullptr));
		if (known != nullptr)
			known->outdated = some_outdated = true;
		return;
	}
	hash_seq_init(&all, tables);
	while ((known = static_cast<KnownTable *>(hash_seq_search(&all))) != nullptr)
		known->outdated = some_outdated = true;
}

// An expression may have the old code of a function in it.
void
function_changed(Datum, int, uint32)
{
	relation_changed(0, InvalidOid);
}

void
forget_outdated(XactEvent, void *)
{
	HASH_SEQ_STATUS all;
	KnownTable *known;

	if (!some_outdated)
		return;
	some_outdated = false;
	hash_seq_init(&all, tables);
	while ((known = static_cast<KnownTable *>(hash_seq_search(&all))) != nullptr)
	{
		if (!known->outdated)
			continue;
		if (known->estate != nullptr)
			MemoryContextDelete(known->estate->es_query_cxt);
		hash_search(tables, &known->rel, HASH_REMOVE, nullptr);
	}
}

void
make_hash()
{
	HASHCTL control = {};

	control.keysize = sizeof(Oid);
	control.entrysize = sizeof(KnownTable);
	tables = hash_create("outbox tables", 16, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(relation_changed, 0);
	CacheRegisterSyscacheCallback(PROCOID, function_changed, 0);
	RegisterXactCallback(forget_outdated, nullptr);
}

bool
is_plain(const Table *table)
{
	return !has_foreign_parts(table) && table->nindexes == table->shape->nindexes;
}

IndexInfo *
prepare_index(Relation index, EState *estate)
{
	IndexInfo *info = BuildIndexInfo(index);

	if (info->ii_Predicate != NIL)
		info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate, estate);
	if (info->ii_Expressions != NIL)
		info->ii_ExpressionsState = ExecPrepareExprList(info->ii_Expressions, estate);
	return info;
}

} // namespace

const KnownTable *
known_table(Oid rel)
{
	const KnownTable *known;

	if (tables == nullptr)
		return nullptr;
	known = static_cast<const KnownTable *>(hash_search(tables, &rel, HASH_FIND, nullptr));
	return known != nullptr && known->estate != nullptr && !known->outdated ? known : nullptr;
}

KnownTable *
watch_table(Oid rel)
{
	KnownTable *known;
	bool found;

	if (tables == nullptr)
		make_hash();
	if (hash_get_num_entries(tables) >= most_tables)
		return nullptr;
	known = static_cast<KnownTable *>(hash_search(tables, &rel, HASH_ENTER, &found));
	if (!found)
		known->estate = nullptr;
	// One that somebody may be using stays as it is, outdated, to the end of the transaction.
	if (known->estate == nullptr && (!found || known->outdated))
	{
		known->outdated = false;
		known->judged = false;
	}
	return known;
}

void
remember_table(const Table *table)
{
	Oid rel = RelationGetRelid(table->rel);
	KnownTable *known = static_cast<KnownTable *>(hash_search(tables, &rel, HASH_FIND, nullptr));
	Size count = static_cast<Size>(table->nindexes);
	MemoryContext previous;
	EState *estate;

	if (known == nullptr || known->estate != nullptr || !is_plain(table))
		return;
	estate = CreateExecutorState();
	previous = MemoryContextSwitchTo(estate->es_query_cxt);
	memcpy(known->attno, table->attno, sizeof(known->attno));
	known->nindexes = table->nindexes;
	known->indexes = static_cast<Oid *>(palloc(sizeof(Oid) * count));
	known->index_infos = static_cast<IndexInfo **>(palloc(sizeof(IndexInfo *) * count));
	for (int i = 0; i < table->nindexes; i++)
	{
		known->indexes[i] = RelationGetRelid(table->indexes[i]);
		known->index_infos[i] = prepare_index(table->indexes[i], estate);
	}
	MemoryContextSwitchTo(previous);
	MemoryContextSetParent(estate->es_query_cxt, CacheMemoryContext);
	known->estate = estate;
}

} // namespace outbox
