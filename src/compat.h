// Differences between PostgreSQL 15, 16, 17 and 18: every test of the server's
// version is here. Included by pg.h, never alone.
#pragma once

#if PG_VERSION_NUM < 150000
#error "outbox needs PostgreSQL 15 or later"
#endif

namespace outbox {

// 16 tells which indexes an update concerns (summarizing ones only, or all).
#if PG_VERSION_NUM >= 160000
using UpdateIndexes = TU_UpdateIndexes;
inline bool needs_index_entries(UpdateIndexes which) { return which == TU_All; }
#else
using UpdateIndexes = bool;
inline bool needs_index_entries(UpdateIndexes which) { return which; }
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

// 18 wants to know whether the caller also counts index searches.
inline IndexScanDesc
begin_index_scan(Relation heap, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, nullptr, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

// 18 may put off the choice of a primary key that is deferrable.
inline Oid
primary_key_index(Relation rel)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(rel, false);
#else
	return RelationGetPrimaryKeyIndex(rel);
#endif
}

// 18 compiles constraint expressions under another signature of the defaults.
inline Node *
column_default(Relation rel, int attno)
{
	return build_column_default(rel, attno);
}

}	// namespace outbox
