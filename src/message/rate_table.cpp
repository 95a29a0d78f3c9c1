// See rate_table.h.

#include "message/rate_table.h"

#include "server/clock.h"

namespace outbox {

namespace {

constexpr int64 ns_per_us = 1000;

struct Spent {
	TupleTableSlot *row; // nullptr = none yet
	int64 until;         // steady clock, nanoseconds
};

Spent
read_spent(Table *table, const text *queue)
{
	TupleTableSlot *row = table_slot_create(table->rel, nullptr);
	// All that accrued since the server started.
	Spent spent = {nullptr, steady_us() * ns_per_us - Max(GetCurrentTimestamp() - PgStartTime, 0) * ns_per_us};
	ScanKeyData key;
	bool isnull;

	key_equals(&key, primary_index(table), 1, F_TEXTEQ, PointerGetDatum(queue));
	if (!find_in_latest_snapshot(table, primary_index(table), &key, 1, row))
	{
		ExecDropSingleTupleTableSlot(row);
		return spent;
	}
	ExecMaterializeSlot(row);
	spent.row = row;
	if (DatumGetTimestampTz(table->get(row, rate_spending_col::started_at, &isnull)) == PgStartTime)
		spent.until = DatumGetInt64(table->get(row, rate_spending_col::spent_until, &isnull));
	return spent;
}

} // namespace

int
find_spending(Call *call, const Queue *queue, const core::Rate &rate, int wanted)
{
	Spent spent;

	if (!try_to_lock_queue(queue->name, ExclusiveLock))
		return 0;
	spent = read_spent(open(call, rate_spending_shape, reads), queue->name);
	if (spent.row != nullptr)
		ExecDropSingleTupleTableSlot(spent.row);
	unlock_queue(queue->name, ExclusiveLock);
	return static_cast<int>(core::affordable(rate, spent.until, steady_us() * ns_per_us, wanted));
}

int
begin_spending(Call *call, const Queue *queue, const core::Rate &rate, int wanted)
{
	Table *table = open(call, rate_spending_shape, inserts | updates);
	Spent spent;
	int64 count;

	if (!try_to_lock_queue(queue->name, ExclusiveLock))
		return 0;
	spent = read_spent(table, queue->name);
	count = core::affordable(rate, spent.until, steady_us() * ns_per_us, wanted);
	if (spent.row != nullptr)
	{
		// Only SQL can have changed it.
		if (count > 0 && hold_row(table, &spent.row->tts_tid, Wait::never) != Changed::done)
			count = 0;
		ExecDropSingleTupleTableSlot(spent.row);
	}
	if (count == 0)
		unlock_queue(queue->name, ExclusiveLock);
	return static_cast<int>(count);
}

void
end_spending(Call *call, const Queue *queue, const core::Rate &rate, int count)
{
	Table *table = open(call, rate_spending_shape, inserts | updates);
	TupleTableSlot *row;
	Spent spent;

	if (count == 0)
	{
		unlock_queue(queue->name, ExclusiveLock);
		return;
	}
	row = new_row(table);
	spent = read_spent(table, queue->name);
	set_text(table, row, rate_spending_col::queue, queue->name);
	set(table, row, rate_spending_col::spent_until,
		Int64GetDatum(core::spend(rate, spent.until, steady_us() * ns_per_us, count)));
	set(table, row, rate_spending_col::started_at, TimestampTzGetDatum(PgStartTime));
	if (spent.row == nullptr)
		insert_rows(table, &row, 1);
	else if (update_row(table, &spent.row->tts_tid, row, Wait::never) != Changed::done)
		elog(ERROR, "a row of outbox.rate_spending changed under its lock");
	if (spent.row != nullptr)
		ExecDropSingleTupleTableSlot(spent.row);
	ExecDropSingleTupleTableSlot(row);
	// The next claim may be in the same command.
	CommandCounterIncrement();
}

void
forget_spending(Call *call, const text *queue)
{
	Table *table = open(call, rate_spending_shape, deletes);
	Spent spent = read_spent(table, queue);

	if (spent.row == nullptr)
		return;
	delete_row(table, &spent.row->tts_tid, Wait::for_row);
	ExecDropSingleTupleTableSlot(spent.row);
}

} // namespace outbox
