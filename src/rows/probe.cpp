// See probe.h.

#include "rows/probe.h"

#include "server/stop_point.h"
#include "server/values.h"

namespace outbox {

#if defined(USE_ASSERT_CHECKING) || defined(OUTBOX_STOP_POINTS)
namespace {

int standing_probes;

void
set_standing(Probe *probe, bool standing)
{
	standing_probes = Max(standing_probes + standing - probe->standing, 0);
	probe->standing = standing;
}

} // namespace

void
expect_no_pins()
{
	if (standing_probes > 0)
		elog(PANIC, "a lock is waited for with the pages of %d probes pinned", standing_probes);
}

void
forget_pins()
{
	standing_probes = 0;
}
#else
namespace {

void
set_standing(Probe *, bool)
{
}

} // namespace
#endif

void
begin_probe(Probe *probe, Relation heap, Relation index, int nkeys)
{
	probe->heap = heap;
	probe->standing = false;
	probe->prunes_late = false;
	InitDirtySnapshot(probe->snapshot);
	probe->scan = begin_index_scan(heap, index, &probe->snapshot, nkeys);
	probe->slot = table_slot_create(heap, nullptr);
}

void
prune_late(Probe *probe)
{
	probe->prunes_late = true;
}

void
start_probe(Probe *probe, ScanKey keys, int nkeys)
{
	ExecClearTuple(probe->slot);
	index_rescan(probe->scan, keys, nkeys, nullptr, 0);
	probe->entries = 0;
	probe->ended = false;
	set_standing(probe, false);
}

void
start_id_probe(Probe *probe, const core::Uuid &id)
{
	ScanKeyData key;

	key_equals(&key, probe->scan->indexRelation, 1, F_UUID_EQ, in_place(id));
	start_probe(probe, &key, 1);
}

void
rest_probe(Probe *probe)
{
	ExecClearTuple(probe->slot);
	// Without keys: it keeps those that it has.
	index_rescan(probe->scan, nullptr, probe->scan->numberOfKeys, nullptr, 0);
	probe->ended = true;
	set_standing(probe, false);
}

namespace {

// Moves to the next entry, unless the current one leads to more rows.
bool
next_entry(Probe *probe, ScanDirection direction)
{
	ItemPointer entry;

	set_standing(probe, true);
	if (probe->scan->xs_heap_continue)
		return true;
	entry = index_getnext_tid(probe->scan, direction);
	if (entry == nullptr)
		return false;
	// A copy: the look-up in the table replaces it by the row's place.
	probe->entry = *entry;
	probe->entries++;
	return true;
}

// A new version may be a little longer.
constexpr Size spare_bytes = 64;

// The first row to which an entry leads. True if its page has room for another version.
bool
search_page(Probe *probe, Buffer buffer, ItemPointer tid, bool *found, bool *all_dead)
{
	BufferHeapTupleTableSlot *slot = reinterpret_cast<BufferHeapTupleTableSlot *>(probe->slot);
	bool has_room;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	*found = heap_hot_search_buffer(tid, probe->heap, buffer, &probe->snapshot, &slot->base.tupdata, all_dead, true);
	has_room =
		!*found || PageGetHeapFreeSpace(BufferGetPage(buffer)) > MAXALIGN(slot->base.tupdata.t_len) + spare_bytes;
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return has_room && !PageIsFull(BufferGetPage(buffer));
}

// What index_fetch_heap() does.
bool
fetch_unpruned(Probe *probe)
{
	BufferHeapTupleTableSlot *slot = reinterpret_cast<BufferHeapTupleTableSlot *>(probe->slot);
	ItemPointerData tid = probe->entry;
	Buffer buffer = ReadBuffer(probe->heap, ItemPointerGetBlockNumber(&tid));
	bool all_dead = false;
	bool found;

	if (!search_page(probe, buffer, &tid, &found, &all_dead))
	{
		// Rows move on the page.
		heap_page_prune_opt(probe->heap, buffer);
		tid = probe->entry;
		search_page(probe, buffer, &tid, &found, &all_dead);
	}
	if (found)
	{
		ExecStoreBufferHeapTuple(&slot->base.tupdata, probe->slot, buffer);
		probe->slot->tts_tableOid = RelationGetRelid(probe->heap);
	}
	ReleaseBuffer(buffer);
	probe->scan->xs_heap_continue = false;
	probe->scan->kill_prior_tuple = all_dead && !probe->scan->xactStartedInRecovery;
	return found;
}

bool
fetch_row(Probe *probe)
{
	return probe->prunes_late ? fetch_unpruned(probe) : index_fetch_heap(probe->scan, probe->slot);
}

} // namespace

bool
next_row(Probe *probe, ScanDirection direction)
{
	while (!probe->ended && next_entry(probe, direction))
	{
		OUTBOX_STOP_POINT("probe_before_row");
		if (fetch_row(probe))
			return true;
	}
	probe->ended = true;
	return false;
}

bool
to_next_entry(Probe *probe, ScanDirection direction)
{
	// Of versions of a row that share an entry one is enough.
	probe->scan->xs_heap_continue = false;
	probe->ended = probe->ended || !next_entry(probe, direction);
	return !probe->ended;
}

bool
has_settled_row(Probe *probe)
{
	OUTBOX_STOP_POINT("probe_before_row");
	return index_fetch_heap(probe->scan, probe->slot) && !TransactionIdIsValid(probe->inserter());
}

bool
next_settled(Probe *probe, ScanDirection direction)
{
	while (next_row(probe, direction))
		if (!TransactionIdIsValid(probe->inserter()))
			return true;
	return false;
}

void
remember_entries(Probe *probe)
{
	probe->scan->xs_want_itup = true;
}

Walk
next_settled_within(Probe *probe, int *entries)
{
	while ((*entries)-- > 0)
	{
		if (!next_entry(probe, ForwardScanDirection))
			return Walk::end;
		if (index_fetch_heap(probe->scan, probe->slot) && !TransactionIdIsValid(probe->inserter()))
			return Walk::row;
	}
	return Walk::tired;
}

Datum
entry_column(const Probe *probe, int column)
{
	bool isnull;

	return index_getattr(probe->scan->xs_itup, column, probe->scan->xs_itupdesc, &isnull);
}

void
end_probe(Probe *probe)
{
	set_standing(probe, false);
	index_endscan(probe->scan);
	ExecDropSingleTupleTableSlot(probe->slot);
}

void
key_compares(ScanKey key, Relation index, int column, StrategyNumber strategy, RegProcedure procedure, Datum value)
{
	ScanKeyEntryInitialize(key, 0, static_cast<AttrNumber>(column), strategy, InvalidOid,
						   index->rd_indcollation[column - 1], procedure, value);
}

void
key_equals(ScanKey key, Relation index, int column, RegProcedure procedure, Datum value)
{
	key_compares(key, index, column, BTEqualStrategyNumber, procedure, value);
}

bool
find_in_snapshot(Relation heap, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot, Snapshot snapshot)
{
	// SnapshotAny takes no predicate locks; visibility is tested below.
	IndexScanDesc scan = begin_index_scan(heap, index, SnapshotAny, nkeys);
	bool found = false;

	index_rescan(scan, keys, nkeys, nullptr, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
		found = table_tuple_satisfies_snapshot(heap, slot, snapshot);
	index_endscan(scan);
	return found;
}

bool
find_in_latest_snapshot(Relation heap, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot)
{
	Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
	bool found;

	// The snapshot is a copy. Changes of the current command count, too.
	latest->curcid = PG_UINT32_MAX;
	found = find_in_snapshot(heap, index, keys, nkeys, slot, latest);
	UnregisterSnapshot(latest);
	return found;
}

} // namespace outbox
