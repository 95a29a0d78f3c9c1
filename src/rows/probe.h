// Looking rows up by index, outside any snapshot.
//
// Guarantees: sees what is committed now, and this transaction's own rows, in every
// isolation level; takes no predicate locks and so never causes a 40001. Rows of
// transactions that are still open are returned too, marked with who inserted or
// is changing them: the caller decides whether to wait, to skip or to refuse.
//
// A probe that stands on a row keeps a page of the index pinned, and one of the table. VACUUM
// waits for pins, and the server does not see a deadlock that one is part of. So a probe is at
// rest before a lock is waited for: expect_no_pins() stands where one is taken.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

struct Probe {
	Relation heap;
	IndexScanDesc scan;
	SnapshotData snapshot;
	TupleTableSlot *slot;
	ItemPointerData entry; // of the index, that led to the row
	bool ended;            // an index scan that is asked again after its end starts from the beginning
	bool standing;         // it may keep pages pinned

	// Another open transaction that inserted, or is changing or deleting, the row.
	TransactionId inserter() const { return snapshot.xmin; }
	TransactionId changer() const { return snapshot.xmax; }
};

void begin_probe(Probe *probe, Relation heap, Relation index, int nkeys);
// Before the first row no page is pinned.
void start_probe(Probe *probe, ScanKey keys, int nkeys);
// Both at once, for the rows of one message: the index begins with outbox_id.
void begin_id_probe(Probe *probe, Relation heap, Relation index, const core::Uuid &id);
// Another message, with the same probe. Rest it in between.
void probe_next_id(Probe *probe, const core::Uuid &id);
// Lets go of its pages; it may be started again.
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

// Where a walk along a column of timestamps was left. Started again at that key, it passes by
// what it has met: entries of one key stand in the order of the places of their rows.
struct Place {
	TimestampTz key;
	ItemPointerData entry;
};
// key: that of the row the probe stands on.
inline bool
is_behind(Probe *probe, TimestampTz key, Place *place)
{
	return key > place->key || ItemPointerCompare(&probe->entry, &place->entry) > 0;
}

// Fails in builds with assertions or stop points, where a probe of this process stands.
#if defined(USE_ASSERT_CHECKING) || defined(OUTBOX_STOP_POINTS)
void expect_no_pins();
void forget_pins(); // what held them was rolled back
#else
inline void
expect_no_pins()
{
}
inline void
forget_pins()
{
}
#endif

void key_equals(ScanKey key, Relation index, int column, RegProcedure procedure, Datum value);
void key_compares(ScanKey key, Relation index, int column, StrategyNumber strategy, RegProcedure procedure,
				  Datum value);

// A row under these keys of an index in the newest committed state. Two versions of a
// row may stand in the index, and a probe that meets them while they change places can
// miss both; a snapshot cannot. Used where a probe found nothing.
bool find_in_latest_snapshot(Relation heap, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot);

} // namespace outbox
