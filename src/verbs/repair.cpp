// repair_expired_leases: takes back leases that have expired.
//
// Guarantees: it finds them by index, without reading pending, and never waits for a row. It records
// each lost lease once, in the transaction that frees the row. A row that cannot be repaired is
// left as it is and reported, and stops no other.

#include "rows/batch.h"
#include "message/lost_lease.h"
#include "verbs/repair.h"
#include "upkeep/installed.h"
#include "commit/shared.h"
#include "commit/sweep.h"
#include "commit/transaction.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

constexpr int chunk_size = 1000;

// Dead entries that a walk without repairs reads at once.
constexpr int entries_to_next_expiry = 5000;
constexpr int entries_a_sweep = 20000;

struct Repaired {
	PendingRow *row; // as found
	Oid leaf;        // of the ledger, when it was found
	Recovery recovery;
	Attempt attempt;
};

bool
is_wanted(const List *queues, const text *queue)
{
	ListCell *cell;

	if (queues == NIL)
		return true;
	foreach (cell, queues)
		if (equal(static_cast<const Queue *>(lfirst(cell))->name, queue))
			return true;
	return false;
}

void
start_between(Probe *probe, TimestampTz from, TimestampTz to)
{
	Relation index = probe->scan->indexRelation;
	ScanKeyData keys[2];

	key_compares(&keys[0], index, 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from));
	key_compares(&keys[1], index, 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(to));
	start_probe(probe, keys, 2);
}

// Leases by their expiry. Start it afterwards.
void
begin_lease_probe(Probe *probe, Call *call)
{
	Table *table = pending(call);

	begin_probe(probe, table, own_index(table, pending_index::lease), 2);
	remember_entries(probe);
}

TimestampTz
expiry_in(Call *call, const Probe *probe)
{
	bool isnull;

	return DatumGetTimestampTz(pending(call)->get(probe->slot, pending_col::lease_expires_at, &isnull));
}

// A walk that does not begin at the floor cannot raise it.
TimestampTz
begin_of_walk(Call *call, RepairScan *scan)
{
	TimestampTz bottom = begin_at_lease_floor(&scan->floor);

	if (scan->from > bottom || is_made_anew(pending(call)->rel))
		leave_floor(&scan->floor);
	return Max(scan->from, bottom);
}

// The next expired lease that no open transaction is changing; nullptr at the end.
Repaired *
next_expired(Call *call, RepairScan *scan, Probe *probe)
{
	while (next_settled(probe, ForwardScanDirection))
	{
		TimestampTz expiry = expiry_in(call, probe);
		PendingRow *row;

		CHECK_FOR_INTERRUPTS();
		if (expiry > call->now)
			leave_floor(&scan->floor);
		raise_floor(&scan->floor, expiry);
		if (TransactionIdIsValid(probe->changer()))
			continue;
		if (scan->resumed && !is_behind(probe, expiry, &scan->left_at))
			continue;
		scan->resumed = false;
		row = load(pending(call), probe->slot, scan->round);
		if (row->leased && row->lease_expires_at <= call->now && is_wanted(scan->queues, row->queue))
		{
			Repaired *lease = static_cast<Repaired *>(MemoryContextAllocZero(scan->round, sizeof(Repaired)));

			lease->row = row;
			scan->left_at = {expiry, probe->entry};
			return lease;
		}
		pfree(row);
	}
	raise_floor(&scan->floor, call->now);
	return nullptr;
}

List *
gather_expired(Call *call, RepairScan *scan, Probe *probe, int most)
{
	List *found = NIL;
	Repaired *lease;

	while (list_length(found) < most && (lease = next_expired(call, scan, probe)) != nullptr)
		found = lappend(found, lease);
	return found;
}

// Moves scan->from behind the leases that it gathers.
List *
gather_whole_expiries(Call *call, RepairScan *scan, Probe *probe)
{
	List *found = gather_expired(call, scan, probe, scan->most);
	TimestampTz last;
	Repaired *lease;

	if (found == NIL)
		return NIL;
	last = static_cast<Repaired *>(llast(found))->row->lease_expires_at;
	while ((lease = next_expired(call, scan, probe)) != nullptr && lease->row->lease_expires_at == last)
		found = lappend(found, lease);
	scan->from = last + 1;
	return found;
}

void
report_left(const RepairScan *scan, const core::Uuid &id, const char *why, int sqlstate)
{
	if (scan->failed != nullptr)
		scan->failed(id, why, sqlstate);
	else
		ereport(WARNING, (errcode(sqlstate), errmsg("could not repair the lease of message %s: %s", shown(id), why)));
}

// A restore fills the tables in any order. The data by which a row is judged may come after the row:
// the attempts of its ledger; its queue, which is missing until then, or was made by the install
// script and is younger than the messages. No session enqueues during a restore. After the first
// enqueue, a younger queue means that the clock was set back or that rows were imported.
void
check_is_complete(Call *call, const PendingRow *row)
{
	const Queue *queue = find_queue(call, row->queue);

	if (queue == nullptr || (row->created_at < queue->created_at && my_database() != nullptr && !is_in_use()))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("its queue \"%s\" is %s", shown(row->queue),
							   queue == nullptr ? "missing" : "younger than it")));
	if (row->attempt_count > 0 && tried(call, row->id).attempts < row->attempt_count)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("its ledger holds fewer attempts than its attempt_count, %d", row->attempt_count)));
}

Recovery
repair_one(Call *call, const RepairScan *scan, Repaired *lease)
{
	// A copy: if the batch fails, the row is repaired again, alone.
	PendingRow row = *lease->row;
	Recovery recovery;

	OUTBOX_STOP_POINT(psprintf("repair_of_%s", text_to_cstring(row.claimed_by)));
	// One wait for the leaf is enough.
	if (list_member_oid(scan->locked, lease->leaf))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("the partition of its ledger is locked")));
	if (scan->cautious)
		check_is_complete(call, &row);
	recovery = recover_expired(call, &row, scan->by, free_lost_lease, &lease->attempt);
	if (recovery == Recovery::freed || recovery == Recovery::ended)
		note_count(row.queue, Counter::repaired);
	return recovery;
}

void
note_locked(Call *call, RepairScan *scan, Oid leaf)
{
	MemoryContext previous = MemoryContextSwitchTo(call->estate->es_query_cxt);

	scan->locked = list_append_unique_oid(scan->locked, leaf);
	MemoryContextSwitchTo(previous);
}

void
repair_found(Call *call, const List *found, RepairScan *scan)
{
	auto lease = [&](int i) { return static_cast<Repaired *>(list_nth(found, i)); };

	each_item(
		call, list_length(found), true,
		[&](Call *inner, int first, int n) {
			for (int i = first; i < first + n; i++)
			{
				CHECK_FOR_INTERRUPTS();
				lease(i)->recovery = repair_one(inner, scan, lease(i));
			}
		},
		[&](int i, ErrorData *error) {
			lease(i)->recovery = Recovery::skipped;
			if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
				note_locked(call, scan, lease(i)->leaf);
			report_left(scan, lease(i)->row->id, error->message, error->sqlerrcode);
		},
		scan->confine);
}

// Drops leases without a partition.
List *
routed(Call *call, RepairScan *scan, List *found)
{
	List *left = NIL;
	ListCell *cell;

	foreach (cell, found)
	{
		Repaired *lease = static_cast<Repaired *>(lfirst(cell));
		const core::Uuid &id = lease->row->id;

		lease->leaf = leaf_now(call, attempts_shape, id);
		if (OidIsValid(lease->leaf))
			left = lappend(left, lfirst(cell));
		else if (scan->failed == nullptr)
			note_unrouted(&scan->unrouted, id);
		else
			scan->failed(id, "no partition of outbox.attempts holds it", ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE);
	}
	list_free(found);
	return left;
}

// Returns how many were repaired.
int
put_repaired(Call *call, const List *found, FunctionCallInfo result)
{
	ListCell *cell;
	int repaired = 0;

	foreach (cell, found)
	{
		const Repaired *one = static_cast<Repaired *>(lfirst(cell));
		Datum values[4];
		bool nulls[4] = {};

		if (one->recovery == Recovery::skipped || one->recovery == Recovery::untried)
			continue;
		repaired++;
		if (result == nullptr)
			continue;
		values[0] = from_uuid(one->attempt.outbox_id);
		values[1] = Int32GetDatum(one->attempt.attempt_no);
		values[2] = state_datum(call, one->attempt.state);
		values[3] = PointerGetDatum(one->attempt.worker_id);
		put_result(result, values, nulls);
	}
	return repaired;
}

// The walk rests during the repairs (due.h), and does not move in their memory.
void
repair_next(Call *call, RepairScan *scan, Probe *probe)
{
	MemoryContext outer;
	List *found;

	MemoryContextReset(scan->round);
	if (scan->resumed)
		start_between(probe, scan->left_at.key, call->now);
	found = scan->whole_expiries ? gather_whole_expiries(call, scan, probe)
								 : gather_expired(call, scan, probe, Min(scan->most - scan->repaired, chunk_size));
	scan->more = !probe->ended;
	leave_floor(&scan->floor);
	rest_probe(probe);
	scan->resumed = true;
	found = routed(call, scan, found);
	outer = MemoryContextSwitchTo(scan->round);
	repair_found(call, found, scan);
	scan->repaired += put_repaired(call, found, scan->result);
	MemoryContextSwitchTo(outer);
	list_free(found);
}

} // namespace

void
repair(Call *call, RepairScan *scan)
{
	Probe probe;

	scan->repaired = 0;
	scan->unrouted = {};
	scan->locked = NIL;
	scan->round = AllocSetContextCreate(CurrentMemoryContext, "outbox repair", ALLOCSET_DEFAULT_SIZES);
	begin_lease_probe(&probe, call);
	scan->resumed = false;
	start_between(&probe, begin_of_walk(call, scan), call->now);
	// Rows that cannot be repaired do not count: the scan continues behind them.
	do
		repair_next(call, scan, &probe);
	while (scan->more && !scan->whole_expiries && scan->repaired < scan->most);
	MemoryContextDelete(scan->round);
	report_unrouted(&scan->unrouted, "repaired");
	end_probe(&probe);
}

TimestampTz
next_expiry_after(Call *call, TimestampTz after)
{
	int entries = entries_to_next_expiry;
	TimestampTz earliest = DT_NOEND;
	Probe probe;
	Walk walk;

	begin_lease_probe(&probe, call);
	start_between(&probe, after + 1, DT_NOEND);
	walk = next_settled_within(&probe, &entries);
	if (walk == Walk::row)
		earliest = expiry_in(call, &probe);
	else if (walk == Walk::tired)
		earliest = DatumGetTimestampTz(entry_column(&probe, 1));
	end_probe(&probe);
	return earliest;
}

void
sweep_leases(Call *call)
{
	static TimestampTz at = DT_NOBEGIN;
	DatabaseSlot *database = my_database();
	Probe probe;

	if (database == nullptr)
		return;
	begin_lease_probe(&probe, call);
	sweep_below(
		&database->lease_floor, &at, &probe, 1, entries_a_sweep,
		[&](TimestampTz from, TimestampTz to) { start_between(&probe, from, to); },
		[&] { return expiry_in(call, &probe); });
	end_probe(&probe);
}

OUTBOX_FUNCTION(outbox_repair_expired_leases)
{
	int batch_size = required_int(fcinfo, 0, "batch_size");
	text *worker = worker_argument(fcinfo, 1);
	RepairScan scan = {};
	Call call;

	check_at_least(batch_size, 1, "batch_size");
	check_batch(batch_size, "batch_size");
	begin_results(fcinfo);
	begin_call(&call, "repair_expired_leases()");
	if (!PG_ARGISNULL(2))
		scan.queues = queues_named(&call, queue_names_argument(fcinfo, 2, nullptr));
	scan.most = batch_size;
	scan.by = worker;
	scan.from = DT_NOBEGIN;
	scan.result = fcinfo;
	repair(&call, &scan);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
