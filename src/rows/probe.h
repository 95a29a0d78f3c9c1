// Looking rows up by index, outside any snapshot.
//
// Guarantees: sees what is committed now, and this transaction's own rows, in every
// isolation level; takes no predicate locks and so never causes a 40001. Rows of
// transactions that are still open are returned too, marked with who inserted or
// is changing them: the caller decides whether to wait, to skip or to refuse.
#pragma once

#include "rows/table.h"

namespace outbox {

struct Probe {
	Table *table;
	IndexScanDesc scan;
	SnapshotData snapshot;
	TupleTableSlot *slot;
	bool ended; // an index scan that is asked again after its end begins anew

	// Another open transaction that inserted, or is changing or deleting, the row.
	TransactionId inserter() const { return snapshot.xmin; }
	TransactionId changer() const { return snapshot.xmax; }
};

void begin_probe(Probe *probe, Table *table, Relation index, int nkeys);
void start_probe(Probe *probe, ScanKey keys, int nkeys);
// Both at once, for the rows of one message: the index begins with outbox_id.
void begin_id_probe(Probe *probe, Table *table, Relation index, const core::Uuid &id);
// By the primary key, with a probe that the table keeps for the next message: rest it, so
// that no page stays pinned.
Probe *probe_id(Table *table, const core::Uuid &id);
void rest_probe(Probe *probe);
bool next_row(Probe *probe, ScanDirection direction = ForwardScanDirection);
// The next row that no other open transaction inserted.
bool next_settled(Probe *probe, ScanDirection direction);
void end_probe(Probe *probe);

// A walk over entries most of which may be dead looks at so many of them, and can be asked how
// far it came. For probes that remember_entries() was called for, before they start.
enum class Walk { row, end, tired };
void remember_entries(Probe *probe);
Walk next_settled_within(Probe *probe, int *entries);
Datum entry_column(const Probe *probe, int column);

void key_equals(ScanKey key, Relation index, int column, RegProcedure procedure, Datum value);
void key_compares(ScanKey key, Relation index, int column, StrategyNumber strategy, RegProcedure procedure,
				  Datum value);

// A row under these keys of an index in the newest committed state. Two versions of a
// row may stand in the index, and a probe that meets them while they change places can
// miss both; a snapshot cannot. Used where a probe found nothing.
bool find_in_latest_snapshot(Table *table, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot);

} // namespace outbox
