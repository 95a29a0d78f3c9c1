// See known_table.h.

#include "rows/known_table.h"

#include "server/stop_point.h"

namespace outbox {

namespace {

// A database that keeps its data for years has many leaves.
constexpr long most_tables = 1024;

struct Remembered {
	Oid rel; // key of the hash table
	KnownTable *known;
};

struct Use {
	MemoryContextCallback callback;
	KnownTable *known;
};

HTAB *tables;

// The table that is being looked at, and whether it changed meanwhile.
Oid looked_at;
bool changed_meanwhile;

void
free_unused(KnownTable *known)
{
	if (known->outdated && known->users == 0)
		MemoryContextDelete(known->context);
}

void
forget(Remembered *remembered)
{
	KnownTable *known = remembered->known;

	hash_search(tables, &remembered->rel, HASH_REMOVE, nullptr);
	known->outdated = true;
	free_unused(known);
}

void
forget_all()
{
	HASH_SEQ_STATUS all;

	hash_seq_init(&all, tables);
	while (auto *remembered = static_cast<Remembered *>(hash_seq_search(&all)))
		forget(remembered);
}

// InvalidOid concerns all.
void
relation_changed(Datum, Oid rel)
{
	changed_meanwhile = changed_meanwhile || !OidIsValid(rel) || rel == looked_at;
	if (!OidIsValid(rel))
		forget_all();
	else if (auto *remembered = static_cast<Remembered *>(hash_search(tables, &rel, HASH_FIND, nullptr)))
		forget(remembered);
}

void
make_hash()
{
	HASHCTL control = {};

	control.keysize = sizeof(Oid);
	control.entrysize = sizeof(Remembered);
	tables = hash_create("outbox tables", 16, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(relation_changed, 0);
}

KnownTable *
find_known(Oid rel)
{
	const Remembered *remembered;

	if (tables == nullptr)
		make_hash();
	remembered = static_cast<const Remembered *>(hash_search(tables, &rel, HASH_FIND, nullptr));
	return remembered != nullptr ? remembered->known : nullptr;
}

void
look_at(Oid rel)
{
	looked_at = rel;
	changed_meanwhile = false;
}

KnownTable *
blank()
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "outbox table", ALLOCSET_SMALL_SIZES);
	KnownTable *known = static_cast<KnownTable *>(MemoryContextAllocZero(context, sizeof(KnownTable)));

	known->context = context;
	return known;
}

// The session keeps it from here on.
void
remember_table(Oid rel, KnownTable *known)
{
	if (hash_get_num_entries(tables) >= most_tables)
		forget_all();
	MemoryContextSetParent(known->context, CacheMemoryContext);
	known->outdated = changed_meanwhile;
	if (!known->outdated)
		static_cast<Remembered *>(hash_search(tables, &rel, HASH_ENTER, nullptr))->known = known;
}

void
end_use(void *known)
{
	KnownTable *used = static_cast<KnownTable *>(known);

	used->users--;
	free_unused(used);
}

void
begin_use(KnownTable *known, MemoryContext user)
{
	Use *use = static_cast<Use *>(MemoryContextAlloc(user, sizeof(Use)));

	use->callback.func = end_use;
	use->callback.arg = known;
	known->users++;
	MemoryContextRegisterResetCallback(user, &use->callback);
}

KnownTable *
look_over(const Shape &shape, Relation rel, int access)
{
	MemoryContext trees = AllocSetContextCreate(CurrentMemoryContext, "outbox survey", ALLOCSET_DEFAULT_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(trees);
	KnownTable *known;
	Layout layout;

	OUTBOX_STOP_POINT("table_looked_over");
	look_at(RelationGetRelid(rel));
	// A table with such problems is surveyed each time.
	changed_meanwhile |= raise_first(survey(shape, rel, &layout), rel, access != reads);
	MemoryContextSwitchTo(previous);
	known = blank();
	known->layout = layout;
	known->layout.indexes = static_cast<Oid *>(
		MemoryContextAlloc(known->context, sizeof(Oid) * static_cast<Size>(Max(layout.nindexes, 1))));
	memcpy(known->layout.indexes, layout.indexes, sizeof(Oid) * static_cast<Size>(layout.nindexes));
	MemoryContextSwitchTo(known->context);
	known->row_desc = CreateTupleDescCopy(RelationGetDescr(rel));
	MemoryContextSwitchTo(previous);
	MemoryContextDelete(trees);
	return known;
}

void
check_access(const Shape &shape, Relation rel, int access)
{
	raise_first(survey_access(shape, rel, access), rel, true);
	if ((access & (updates | deletes)) != 0)
		CheckCmdReplicaIdentity(rel, (access & updates) != 0 ? CMD_UPDATE : CMD_DELETE);
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

KnownTable *
know_table(const Shape &shape, Relation rel, int access, MemoryContext user)
{
	Oid oid = RelationGetRelid(rel);
	KnownTable *known = find_known(oid);

	if (known == nullptr)
	{
		known = look_over(shape, rel, access);
		begin_use(known, user);
		remember_table(oid, known);
	}
	else
		begin_use(known, user);
	if ((access & ~known->passed) != 0)
	{
		check_access(shape, rel, access);
		known->passed |= access;
	}
	return known;
}

void
check_parent(const Shape &shape, Oid oid, int access)
{
	KnownTable *known = find_known(oid);
	int passed = known != nullptr ? known->passed : 0;
	Relation rel;

	if ((access & ~passed) == 0)
		return;
	look_at(oid);
	rel = RelationIdGetRelation(oid);
	if (!RelationIsValid(rel))
		parent_is_gone(oid);
	check_access(shape, rel, access);
	RelationClose(rel);
	if (changed_meanwhile)
		return;
	if (known == nullptr)
	{
		known = blank();
		remember_table(oid, known);
	}
	known->passed |= access;
}

// Other kinds of indexes keep data of one statement in it.
void
know_indexes(KnownTable *known, Relation *indexes)
{
	MemoryContext previous = MemoryContextSwitchTo(known->context);
	EState *estate = CreateExecutorState();
	IndexInfo **infos;

	MemoryContextSwitchTo(estate->es_query_cxt);
	infos = static_cast<IndexInfo **>(palloc0(sizeof(IndexInfo *) * static_cast<Size>(known->layout.nindexes)));
	for (int i = 0; i < known->layout.nindexes; i++)
		if (indexes[i]->rd_rel->relam == BTREE_AM_OID)
			infos[i] = prepare_index(indexes[i], estate);
	MemoryContextSwitchTo(previous);
	known->index_infos = infos;
}

[[noreturn]] void
parent_is_gone(Oid oid)
{
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("the outbox was dropped concurrently"),
					errdetail("Its table with OID %u is gone.", oid), errhint("Try again.")));
}

} // namespace outbox
