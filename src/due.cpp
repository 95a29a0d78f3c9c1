// See due.h. A queue is read priority by priority: one descent finds the next priority
// in use, another its oldest due row.

#include "due.h"

namespace outbox {

namespace {

// Goes to one end of the current priority's rows, or of those below it.
void
start_at(DueScan *scan, StrategyNumber level_strategy, RegProcedure level_operator, StrategyNumber time_strategy,
		 RegProcedure time_operator, TimestampTz time)
{
	ScanKeyData keys[3];

	key_equals(&keys[0], scan->index, 1, F_TEXTEQ, PointerGetDatum(scan->queue->name));
	key_compares(&keys[1], scan->index, 2, level_strategy, level_operator, Int16GetDatum(static_cast<int16>(scan->level)));
	key_compares(&keys[2], scan->index, 3, time_strategy, time_operator, TimestampTzGetDatum(time));
	start_probe(&scan->probe, keys, 3);
}

// Moves on to the greatest priority below the current one that the queue holds.
bool
find_level(DueScan *scan)
{
	Table *table = pending(scan->work);
	bool isnull;

	// The index is descending in priority: its strategies are turned round.
	start_at(scan, BTLessStrategyNumber, F_INT2LT, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, DT_NOBEGIN);
	if (!next_row(&scan->probe))
		return false;
	scan->level = DatumGetInt16(table->get(scan->probe.slot, pending_col::priority, &isnull));
	return true;
}

bool
next_level(DueScan *scan)
{
	if (!find_level(scan))
		return false;
	start_at(scan, BTEqualStrategyNumber, F_INT2EQ, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, scan->work->now);
	scan->in_level = true;
	return true;
}

// Where the row in the slot stands in the index.
TimestampTz
claimable_at(DueScan *scan)
{
	Table *table = pending(scan->work);
	bool isnull;
	TimestampTz next_attempt =
		DatumGetTimestampTz(table->get(scan->probe.slot, pending_col::next_attempt_at, &isnull));
	Datum expiry = table->get(scan->probe.slot, pending_col::lease_expires_at, &isnull);

	return isnull ? next_attempt : Max(next_attempt, DatumGetTimestampTz(expiry));
}

}	// namespace

void
begin_due_scan(DueScan *scan, Work *work, const Queue *queue)
{
	Table *table = pending(work);

	scan->work = work;
	scan->queue = queue;
	scan->index = named_index(table, "pending_due");
	scan->level = PG_INT16_MAX;
	scan->in_level = false;
	begin_probe(&scan->probe, table, scan->index, 3);
}

bool
next_due(DueScan *scan)
{
	for (;;)
	{
		if (!scan->in_level && !next_level(scan))
			return false;
		while (next_settled(&scan->probe, ForwardScanDirection))
		{
			CHECK_FOR_INTERRUPTS();
			if (!TransactionIdIsValid(scan->probe.changer()))
				return true;
		}
		scan->in_level = false;
	}
}

void
end_due_scan(DueScan *scan)
{
	end_probe(&scan->probe);
}

bool
has_due(Work *work, const Queue *queue)
{
	DueScan scan;
	bool found;

	begin_due_scan(&scan, work, queue);
	found = next_due(&scan);
	end_due_scan(&scan);
	return found;
}

TimestampTz
next_due_after(Work *work, const Queue *queue, TimestampTz after)
{
	TimestampTz earliest = DT_NOEND;
	DueScan scan;

	begin_due_scan(&scan, work, queue);
	while (find_level(&scan))
	{
		start_at(&scan, BTEqualStrategyNumber, F_INT2EQ, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT, after);
		if (next_settled(&scan.probe, ForwardScanDirection))
			earliest = Min(earliest, claimable_at(&scan));
	}
	end_due_scan(&scan);
	return earliest;
}

}	// namespace outbox
