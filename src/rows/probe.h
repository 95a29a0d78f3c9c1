// Looking rows up by index, outside any snapshot.
//
// Guarantees: a probe sees what is committed now, and the rows of this transaction, in every
// isolation level. It takes no predicate locks and so never causes a 40001. It also returns rows of
// open transactions, with the transaction that inserted or is changing them: the caller decides
// whether to wait, to skip or to refuse.
//
// A probe that stands on a row keeps a page of the index and one of the table pinned. VACUUM waits
// for pins, and the server does not detect a deadlock with one. So a probe rests before a lock is
// waited for; expect_no_pins() marks the places that take one.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

struct Probe {
	Relation heap;
	IndexScanDesc scan;
	SnapshotData snapshot;
	TupleTableSlot *slot;
	ItemPointerData entry; // the index entry that led to the row
	int64 entries;         // how many were read since the start
	bool ended;            // an index scan starts again if it is asked after its end
	bool standing;         // it may keep pages pinned
	bool prunes_late;      // see prune_late()

	// Another open transaction that inserted, or is changing or deleting, the row.
	TransactionId inserter() const { return snapshot.xmin; }
	TransactionId changer() const { return snapshot.xmax; }
};

void begin_probe(Probe *probe, Relation heap, Relation index, int nkeys);
// Before the first row no page is pinned.
void start_probe(Probe *probe, ScanKey keys, int nkeys);
// The server prunes a page that it reads as soon as less of it is free than fillfactor asks for. Where each call reads
// a row and updates it that is once a call, for one dead version. From now on the probe waits until the row's next
// version has no room, and then many dead versions go at once.
void prune_late(Probe *probe);
// Starts it for the rows of one message, if the index begins with outbox_id. Rest it before the next one.
void start_id_probe(Probe *probe, const core::Uuid &id);
// Unpins its pages; it may be started again.
void rest_probe(Probe *probe);
bool next_row(Probe *probe, ScanDirection direction = ForwardScanDirection);
// The next row that no other open transaction inserted.
bool next_settled(Probe *probe, ScanDirection direction);
void end_probe(Probe *probe);

// The two halves of next_settled(), for walks that look only some entries up: moves on to the next entry, and looks
// whether it leads to a row. Call remember_entries() before the probe starts.
bool to_next_entry(Probe *probe, ScanDirection direction = ForwardScanDirection);
bool has_settled_row(Probe *probe);

// A walk over a limited number of entries, which may be dead. entry_column() tells how far it came.
// Call remember_entries() before the probe starts.
enum class Walk { row, end, tired };
void remember_entries(Probe *probe);
Walk next_settled_within(Probe *probe, int *entries);
Datum entry_column(const Probe *probe, int column);

// Where a walk along a column of timestamps was left. Started again at that key, it skips the
// entries up to there: entries of one key are in the order of their rows' places.
struct Place {
	TimestampTz key;
	ItemPointerData entry;
};
// key: of the row on which the probe stands.
inline bool
is_behind(Probe *probe, TimestampTz key, Place *place)
{
	return key > place->key || ItemPointerCompare(&probe->entry, &place->entry) > 0;
}

// Builds with assertions or stop points fail here if a probe of this process stands on a row.
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

// A row with these keys in the newest committed state, for use where a probe found nothing. An index
// may hold two versions of a row. A probe that reads during the update can miss both; a snapshot
// cannot.
bool find_in_latest_snapshot(Relation heap, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot);
// The same in another one.
bool find_in_snapshot(Relation heap, Relation index, ScanKey keys, int nkeys, TupleTableSlot *slot, Snapshot snapshot);

} // namespace outbox
