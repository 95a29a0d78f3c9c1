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

// Later versions also take the statistics of an EXPLAIN (18), and whether a deferrable
// key will do. What the function takes decides here, not the version that first did.
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
Oid
primary_key_index(Rel rel)
{
	if constexpr (requires { RelationGetPrimaryKeyIndex(rel, false); })
		return RelationGetPrimaryKeyIndex(rel, false);
	else
		return RelationGetPrimaryKeyIndex(rel);
}

// heap_update passes TM_BeingModified through when it is told not to wait, in all these
// versions, but a server built with assertions refuses to be told so: there the row is
// locked first.
#ifdef USE_ASSERT_CHECKING
constexpr bool updates_without_wait = false;
#else
constexpr bool updates_without_wait = true;
#endif

// 17 lets an index release what it cached for a run of insertions.
inline void
end_index_inserts([[maybe_unused]] Relation index, [[maybe_unused]] IndexInfo *info)
{
#if PG_VERSION_NUM >= 170000
	index_insert_cleanup(index, info);
#endif
}

}	// namespace outbox
