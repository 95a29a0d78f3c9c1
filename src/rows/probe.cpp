// See probe.h.

#include "rows/probe.h"

#include "rows/call.h"

namespace outbox {

void
begin_probe(Probe *probe, Table *table, Relation index, int nkeys)
{
	probe->table = table;
	InitDirtySnapshot(probe->snapshot);
	probe->scan = begin_index_scan(table->rel, index, &probe->snapshot, nkeys);
	probe->slot = table_slot_create(table->rel, nullptr);
}

void
start_probe(Probe *probe, ScanKey keys, int nkeys)
{
	index_rescan(probe->scan, keys, nkeys, nullptr, 0);
	probe->ended = false;
}

void
begin_id_probe(Probe *probe, Table *table, Relation index, const core::Uuid &id)
{
	ScanKeyData key;

	key_equals(&key, index, 1, F_UUID_EQ, from_uuid(id));
	begin_probe(probe, table, index, 1);
	start_probe(probe, &key, 1);
}

Probe *
probe_id(Table *table, const core::Uuid &id)
{
	ScanKeyData key;

	if (table->id_probe == nullptr)
	{
		table->id_probe = static_cast<Probe *>(palloc(sizeof(Probe)));
		begin_probe(table->id_probe, table, primary_index(table), 1);
	}
	key_equals(&key, table->id_probe->scan->indexRelation, 1, F_UUID_EQ, in_place(id));
	start_probe(table->id_probe, &key, 1);
	return table->id_probe;
}

void
rest_probe(Probe *probe)
{
	ExecClearTuple(probe->slot);
	// No keys: it keeps those that it has, as many as it was begun for.
	index_rescan(probe->scan, nullptr, probe->scan->numberOfKeys, nullptr, 0);
	probe->ended = true;
}

bool
next_row(Probe *probe, ScanDirection direction)
{
	probe->ended = probe->ended || !index_getnext_slot(probe->scan, direction, probe->slot);
	return !probe->ended;
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
		if (!probe->scan->xs_heap_continue && index_getnext_tid(probe->scan, ForwardScanDirection) == nullptr)
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
find_in_latest_snapshot(Table *table, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot)
{
	Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
	// Under SnapshotAny the scan takes no predicate locks; visibility is tested here.
	IndexScanDesc scan = begin_index_scan(table->rel, index, SnapshotAny, nkeys);
	bool found = false;

	// The copy is ours: what this very command has changed counts, too.
	latest->curcid = PG_UINT32_MAX;
	index_rescan(scan, keys, nkeys, nullptr, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
		found = table_tuple_satisfies_snapshot(table->rel, slot, latest);
	index_endscan(scan);
	UnregisterSnapshot(latest);
	return found;
}

} // namespace outbox
