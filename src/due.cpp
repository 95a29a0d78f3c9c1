// See due.h. A queue is read priority by priority: one descent finds the next priority
// in use, another its oldest due row.

#include "due.h"

namespace outbox {

namespace {

// Moves on to the greatest priority below the current one that the queue holds.
bool
next_level(DueScan *scan)
{
	Table *table = pending(scan->work);
	ScanKeyData keys[3];
	bool isnull;

	key_equals(&keys[0], scan->index, 1, F_TEXTEQ, PointerGetDatum(scan->queue->name));
	// The index is descending in priority: its strategies are turned round.
	key_compares(&keys[1], scan->index, 2, BTLessStrategyNumber, F_INT2LT,
				 Int16GetDatum(static_cast<int16>(scan->level)));
	key_compares(&keys[2], scan->index, 3, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				 TimestampTzGetDatum(DT_NOBEGIN));
	start_probe(&scan->probe, keys, 3);
	if (!next_row(&scan->probe))
		return false;
	scan->level = DatumGetInt16(table->get(scan->probe.slot, pending_col::priority, &isnull));
	key_equals(&keys[1], scan->index, 2, F_INT2EQ, Int16GetDatum(static_cast<int16>(scan->level)));
	key_compares(&keys[2], scan->index, 3, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
				 TimestampTzGetDatum(scan->work->now));
	start_probe(&scan->probe, keys, 3);
	scan->in_level = true;
	return true;
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

}	// namespace outbox
