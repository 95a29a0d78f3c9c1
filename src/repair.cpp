// repair_expired_leases: takes back leases that have expired.
//
// Guarantees: finds them by index, without reading pending; never waits for a row;
// records each lost lease once, in the transaction that frees the row. A row that
// cannot be repaired is left as it is, reported, and stops no other.

#include "boundary.h"
#include "lease.h"
#include "lost.h"
#include "repair.h"

namespace outbox {

namespace {

constexpr int chunk_size = 1000;

struct Repaired {
	PendingRow *row;	// as found
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

struct ExpiredScan {
	Work *work;
	const List *queues;
	Probe probe;
};

void
begin_expired_scan(ExpiredScan *scan, Work *work, const List *queues)
{
	Table *table = pending(work);
	Relation index = named_index(table, "pending_lease");
	ScanKeyData key;

	scan->work = work;
	scan->queues = queues;
	key_compares(&key, index, 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(work->now));
	begin_probe(&scan->probe, table, index, 1);
	start_probe(&scan->probe, &key, 1);
}

// The next expired leases, earliest expiry first, that no open transaction is changing.
List *
gather_expired(ExpiredScan *scan, int most)
{
	List *found = NIL;

	while (list_length(found) < most && next_settled(&scan->probe, ForwardScanDirection))
	{
		Repaired *lease;

		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsValid(scan->probe.changer()))
			continue;
		lease = static_cast<Repaired *>(palloc0(sizeof(Repaired)));
		lease->row = load(pending(scan->work), scan->probe.slot);
		if (lease->row->leased && is_wanted(scan->queues, lease->row->queue))
			found = lappend(found, lease);
	}
	return found;
}

void
free_row(PendingRow *row, const Queue *queue)
{
	clear_lease(row);
	row->next_attempt_at = later_or_last(GetCurrentTimestamp(), queue != nullptr ? queue->repair_delay_us : 0);
}

void
repair_found(Work *work, const List *found, text *by)
{
	auto lease = [&](int i) { return static_cast<Repaired *>(list_nth(found, i)); };

	each_confined(
		list_length(found),
		[&](int first, int n) {
			Work inner;

			begin_nested_work(&inner, work);
			for (int i = first; i < first + n; i++)
			{
				// A copy, because a run that fails is run again from what was found.
				PendingRow row = *lease(i)->row;

				lease(i)->recovery = recover_expired(&inner, &row, by, free_row, &lease(i)->attempt);
			}
			end_work(&inner);
		},
		[&](int i, ErrorData *error) {
			lease(i)->recovery = Recovery::skipped;
			ereport(WARNING, (errcode(error->sqlerrcode),
							  errmsg("could not repair the lease of message %s: %s", shown(lease(i)->row->id),
									 error->message)));
		});
}

// Returns how many of them were repaired.
int
answer(Work *work, const List *found, FunctionCallInfo result)
{
	ListCell *cell;
	int repaired = 0;

	foreach (cell, found)
	{
		const Repaired *one = static_cast<Repaired *>(lfirst(cell));
		Datum values[4];
		bool nulls[4] = {};

		if (one->recovery == Recovery::skipped)
			continue;
		repaired++;
		if (result == nullptr)
			continue;
		values[0] = from_uuid(one->attempt.outbox_id);
		values[1] = Int32GetDatum(one->attempt.attempt_no);
		values[2] = state_datum(work, one->attempt.state);
		values[3] = PointerGetDatum(one->attempt.worker_id);
		put_result(result, values, nulls);
	}
	return repaired;
}

}	// namespace

int
repair(Work *work, int batch_size, text *by, const List *queues, FunctionCallInfo result)
{
	int repaired = 0;
	ExpiredScan scan;
	List *found;

	begin_expired_scan(&scan, work, queues);
	// Rows that cannot be repaired do not count: the scan goes on behind them.
	while (repaired < batch_size &&
		   (found = gather_expired(&scan, Min(batch_size - repaired, chunk_size))) != NIL)
	{
		repair_found(work, found, by);
		repaired += answer(work, found, result);
	}
	end_probe(&scan.probe);
	return repaired;
}

}	// namespace outbox

using namespace outbox;

OUTBOX_FUNCTION(outbox_repair_expired_leases)
{
	int batch_size = required_int(fcinfo, 0, "batch_size");
	text *worker = worker_argument(fcinfo, 1);
	List *queues = NIL;
	Work work;

	check_at_least(batch_size, 1, "batch_size");
	InitMaterializedSRF(fcinfo, 0);
	begin_work(&work, "repair_expired_leases()");
	if (!PG_ARGISNULL(2))
		queues = queues_argument(&work, fcinfo, 2);
	if (PG_ARGISNULL(2) || queues != NIL)
		repair(&work, batch_size, worker, queues, fcinfo);
	end_work(&work);
	return static_cast<Datum>(0);
}
