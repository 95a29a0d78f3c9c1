// Differences between PostgreSQL 15, 16, 17 and 18: every test of the server's
// version is here. Included by pg.h, never alone.
#pragma once

#if PG_VERSION_NUM < 150000
#error "outbox needs PostgreSQL 15 or later"
#endif

namespace outbox {

// 16 tells which indexes an update concerns: none, all, or those that summarize blocks.
#if PG_VERSION_NUM >= 160000
using UpdateIndexes = TU_UpdateIndexes;
constexpr UpdateIndexes all_indexes = TU_All;
inline bool
is_concerned(UpdateIndexes which, Relation index)
{
	return which == TU_All || (which == TU_Summarizing && index->rd_indam->amsummarizing);
}
#else
using UpdateIndexes = bool;
constexpr UpdateIndexes all_indexes = true;
inline bool
is_concerned(UpdateIndexes which, Relation)
{
	return which;
}
#endif

// 17 has infinite intervals.
inline bool
interval_is_infinite([[maybe_unused]] const Interval *interval)
{
#if PG_VERSION_NUM >= 170000
	return INTERVAL_NOT_FINITE(interval);
#else
	return false;
#endif
}

// Later versions also take the statistics of an EXPLAIN (18), and whether a deferrable key is
// allowed. The arguments of the function decide here, not the version.
template <typename Rel>
IndexScanDesc
begin_index_scan(Rel heap, Rel index, Snapshot snapshot, int nkeys)
{
	if constexpr (requires { index_beginscan(heap, index, snapshot, nullptr, nkeys, 0); })
		return index_beginscan(heap, index, snapshot, nullptr, nkeys, 0);
	else
		return index_beginscan(heap, index, snapshot, nkeys, 0);
}

template <typename Rel>
IndexScanDesc
begin_bitmap_scan(Rel index, Snapshot snapshot, int nkeys)
{
	if constexpr (requires { index_beginscan_bitmap(index, snapshot, nullptr, nkeys); })
		return index_beginscan_bitmap(index, snapshot, nullptr, nkeys);
	else
		return index_beginscan_bitmap(index, snapshot, nkeys);
}

template <typename Rel>
Oid
primary_key_index(Rel rel)
{
	if constexpr (requires { RelationGetPrimaryKeyIndex(rel, false); })
		return RelationGetPrimaryKeyIndex(rel, false);
	else
		return RelationGetPrimaryKeyIndex(rel);
}

// Up to 15 the walker is declared without its arguments.
inline bool
walk_expression(Node *node, bool (*walker)(Node *, void *), void *context)
{
#if PG_VERSION_NUM >= 160000
	return expression_tree_walker(node, walker, context);
#else
	return expression_tree_walker(node, reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(walker)), context);
#endif
}

// 17 allows an extension to name its wait events.
inline uint32
extension_wait_event()
{
#if PG_VERSION_NUM >= 170000
	static uint32 event;

	if (event == 0)
		event = WaitEventExtensionNew("OutboxMain");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

// This transaction made the table or its contents: a rollback brings back the earlier ones.
inline bool
is_made_anew(Relation rel)
{
#if PG_VERSION_NUM >= 160000
	SubTransactionId made = rel->rd_firstRelfilelocatorSubid;
#else
	SubTransactionId made = rel->rd_firstRelfilenodeSubid;
#endif

	return rel->rd_createSubid != InvalidSubTransactionId || made != InvalidSubTransactionId;
}

// The number of this process's PGPROC.
inline uint32
process_number()
{
#if PG_VERSION_NUM >= 170000
	return static_cast<uint32>(MyProcNumber);
#else
	return static_cast<uint32>(MyProc->pgprocno);
#endif
}

// Left behind by an interrupted DROP DATABASE; no session can connect to it.
inline bool
database_is_broken([[maybe_unused]] Form_pg_database database)
{
#ifdef DATCONNLIMIT_INVALID_DB
	return database->datconnlimit == DATCONNLIMIT_INVALID_DB;
#else
	return false;
#endif
}

inline bool
owns_database(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, role);
#else
	return pg_database_ownercheck(database, role);
#endif
}

inline bool
owns_function(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(ProcedureRelationId, function, role);
#else
	return pg_proc_ownercheck(function, role);
#endif
}

inline bool
may_execute(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

// Calls use(value) with the next value, which is not NULL; false: there is none. Up to 15 the caller gets a copy.
template <typename State, typename Use>
bool
use_sorted_datum(State *state, const Use &use)
{
	Datum value;
	bool isnull;

	if constexpr (requires { tuplesort_getdatum(state, true, false, &value, &isnull, nullptr); })
	{
		if (!tuplesort_getdatum(state, true, false, &value, &isnull, nullptr))
			return false;
		use(value);
	}
	else
	{
		if (!tuplesort_getdatum(state, true, &value, &isnull, nullptr))
			return false;
		use(value);
		pfree(DatumGetPointer(value));
	}
	return true;
}

// 17 lets an index release what it cached for a run of insertions.
inline void
end_index_inserts([[maybe_unused]] Relation index, [[maybe_unused]] IndexInfo *info)
{
#if PG_VERSION_NUM >= 170000
	index_insert_cleanup(index, info);
#endif
}

// Whether a text in the database's encoding is JSON. Raises no ERROR. From 17 on the caller may
// allocate the context of the parser.
inline bool
is_json(char *text, int size)
{
#if PG_VERSION_NUM >= 170000
	JsonLexContext *lex =
		makeJsonLexContextCstringLen(nullptr, text, static_cast<size_t>(size), GetDatabaseEncoding(), false);
#else
	JsonLexContext *lex = makeJsonLexContextCstringLen(text, size, GetDatabaseEncoding(), false);
#endif

	return pg_parse_json(lex, &nullSemAction) == JSON_SUCCESS;
}

} // namespace outbox
