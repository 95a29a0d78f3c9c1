// See fair.h.

#include "message/fair.h"

#include "server/random.h"

namespace outbox {

namespace {

// How many entries of a key that has had its turn are read before the next key is looked for by a descent.
constexpr int steps_to_descent = 100;
// In entries. What a row that is found adds covers the descent to the next one.
constexpr int first_patience = 256;
constexpr int endless_patience = PG_INT32_MAX / 2;
constexpr int patience_of_descent = 8;
constexpr int patience_of_full_key = 16;
constexpr int patience_of_row = 32;
// Rows in the due order that cannot be leased.
constexpr int due_patience = 64;

// ---- the probe

void
start_in_keys(FairScan *scan, int64 least, int64 most)
{
	ScanKeyData keys[4];

	key_equals(&keys[0], scan->index, 1, F_INT2EQ, Int16GetDatum(static_cast<int16>(scan->due.level)));
	key_compares(&keys[1], scan->index, 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(least));
	key_compares(&keys[2], scan->index, 2, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(most));
	// The probe has four.
	keys[3] = keys[2];
	start_probe(&scan->probe, keys, 4);
	scan->started = true;
}

void
start_in_key(FairScan *scan, int64 key, TimestampTz from)
{
	ScanKeyData keys[4];

	key_equals(&keys[0], scan->index, 1, F_INT2EQ, Int16GetDatum(static_cast<int16>(scan->due.level)));
	key_equals(&keys[1], scan->index, 2, F_INT8EQ, Int64GetDatum(key));
	key_compares(&keys[2], scan->index, 3, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from));
	key_compares(&keys[3], scan->index, 3, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
				 TimestampTzGetDatum(scan->call->now));
	start_probe(&scan->probe, keys, 4);
	scan->started = true;
}

// The row on which the probe stands, if it may be leased.
PendingRow *
load_due(FairScan *scan, MemoryContext context)
{
	PendingRow *row = load(pending(scan->call), scan->probe.slot, context);

	if (row->claimable_at <= scan->call->now && equal(row->queue, scan->queue->name))
		return row;
	pfree(row);
	return nullptr;
}

// ---- turns

pg_atomic_uint64 *
turn_of(const FairScan *scan)
{
	QueueSlot *slot = scan->due.ref.slot;

	return slot != nullptr && scan->due.level >= 0 && scan->due.level < priorities ? &slot->turns[scan->due.level]
																				   : nullptr;
}

void
remember_turn(const FairScan *scan)
{
	pg_atomic_uint64 *turn = turn_of(scan);

	if (turn != nullptr && !scan->limit.looking)
		pg_atomic_write_u64(turn, static_cast<uint64>(scan->at));
}

// Where the last claim stopped; without shared memory anywhere.
int64
first_turn(const FairScan *scan)
{
	pg_atomic_uint64 *turn = turn_of(scan);
	int64 least = scan->queue->fair_base;
	int64 most = last_fair_key(scan->queue);
	int64 key = static_cast<int64>(turn != nullptr ? pg_atomic_read_u64(turn) : 0);

	if (turn == nullptr)
		return least + static_cast<int64>(random_bits() >> (64 - fair_key_bits));
	return key >= least && key <= most ? key : least;
}

void
begin_turns(FairScan *scan)
{
	scan->from = scan->due.left_at.key;
	scan->start = scan->at = first_turn(scan);
	scan->wrapped = scan->circled = scan->inside = scan->has_passed = scan->standing = false;
	scan->patience = first_patience;
	scan->due_left = due_patience;
	scan->keys = scan->current = 0;
	scan->step = FairScan::turns;
}

void
pass_key(FairScan *scan, int64 key)
{
	scan->has_passed = true;
	scan->passed = key;
	scan->at = key + 1;
	scan->standing = scan->standing && !scan->inside;
	scan->inside = false;
}

void
descend(FairScan *scan)
{
	if (scan->inside)
		start_in_key(scan, scan->at, scan->from);
	else
		start_in_keys(scan, scan->at, scan->wrapped ? scan->start - 1 : last_fair_key(scan->queue));
	scan->standing = true;
	scan->steps = 0;
	scan->patience -= patience_of_descent;
}

// No entry is left where the probe was.
void
end_part(FairScan *scan)
{
	scan->standing = false;
	if (scan->inside)
		pass_key(scan, scan->at);
	else if (scan->wrapped || scan->start == scan->queue->fair_base)
		scan->circled = true;
	else
	{
		scan->wrapped = true;
		scan->has_passed = false;
		scan->at = scan->queue->fair_base;
	}
}

// An entry that leads nowhere.
void
step_over(FairScan *scan)
{
	scan->patience--;
	scan->standing = ++scan->steps <= steps_to_descent;
}

void
remember_share(FairScan *scan, int64 key, const Place &place)
{
	if (scan->keys == scan->room)
	{
		scan->room = Max(scan->room * 2, 64);
		scan->given_to = static_cast<Share *>(repalloc(scan->given_to, sizeof(Share) * static_cast<Size>(scan->room)));
	}
	scan->given_to[scan->keys++] = {key, place, false};
}

// The entry on which the probe stands.
PendingRow *
look_at_entry(FairScan *scan, MemoryContext context)
{
	int64 key = DatumGetInt64(entry_column(&scan->probe, 2));
	TimestampTz time = DatumGetTimestampTz(entry_column(&scan->probe, 3));
	PendingRow *row;

	if (scan->has_passed && key == scan->passed)
	{
		step_over(scan);
		return nullptr;
	}
	scan->at = key;
	if (time > scan->call->now)
	{
		pass_key(scan, key);
		scan->patience--;
		return nullptr;
	}
	if (time < scan->from)
	{
		step_over(scan);
		scan->inside = !scan->standing;
		return nullptr;
	}
	scan->patience--;
	if (!has_settled_row(&scan->probe) || TransactionIdIsValid(scan->probe.changer()))
		return nullptr;
	if ((row = load_due(scan, context)) == nullptr)
		return nullptr;
	if (!take_place_in_key(&scan->limit, key))
	{
		scan->patience -= patience_of_full_key;
		pass_key(scan, key);
		pfree(row);
		return nullptr;
	}
	remember_share(scan, key, {time, scan->probe.entry});
	pass_key(scan, key);
	scan->steps = 0;
	scan->patience += patience_of_row;
	return row;
}

PendingRow *
next_turn(FairScan *scan, MemoryContext context)
{
	while (!scan->circled && scan->patience > 0)
	{
		PendingRow *row;

		CHECK_FOR_INTERRUPTS();
		if (!scan->standing)
			descend(scan);
		if (!to_next_entry(&scan->probe))
			end_part(scan);
		else if ((row = look_at_entry(scan, context)) != nullptr)
			return row;
	}
	return nullptr;
}

// ---- shares

// False: no key has more.
bool
begin_shares(FairScan *scan)
{
	int left = 0;

	for (int i = 0; i < scan->keys; i++)
		left += !scan->given_to[i].over;
	scan->current = scan->of_share = 0;
	if (left > 0)
		scan->share = Max((scan->wanted - scan->given + left - 1) / left, 1);
	return left > 0;
}

void
next_key(FairScan *scan)
{
	scan->current++;
	scan->of_share = 0;
	scan->standing = false;
}

// The next row of the key; nullptr: it has none, or had its share.
PendingRow *
next_of_key(FairScan *scan, Share *share, MemoryContext context)
{
	bool isnull;

	if (!scan->standing)
		start_in_key(scan, share->key, share->last.key);
	scan->standing = true;
	while (scan->of_share < scan->share && next_settled(&scan->probe, ForwardScanDirection))
	{
		TimestampTz time =
			DatumGetTimestampTz(pending(scan->call)->get(scan->probe.slot, pending_col::next_attempt_at, &isnull));
		PendingRow *row;

		CHECK_FOR_INTERRUPTS();
		if (!is_behind(&scan->probe, time, &share->last))
			continue;
		share->last = {time, scan->probe.entry};
		if (TransactionIdIsValid(scan->probe.changer()) || (row = load_due(scan, context)) == nullptr)
			continue;
		if (!take_place_in_key(&scan->limit, share->key))
		{
			pfree(row);
			break;
		}
		scan->of_share++;
		return row;
	}
	share->over = scan->of_share < scan->share;
	return nullptr;
}

PendingRow *
next_of_shares(FairScan *scan, MemoryContext context)
{
	for (;;)
	{
		Share *share;
		PendingRow *row;

		if (scan->current >= scan->keys && !begin_shares(scan))
			return nullptr;
		share = &scan->given_to[scan->current];
		row = share->over ? nullptr : next_of_key(scan, share, context);
		if (row != nullptr)
			return row;
		next_key(scan);
	}
}

// ---- by time

PendingRow *
next_by_time(FairScan *scan, MemoryContext context)
{
	while (scan->due_left > 0 && next_due_in_level(&scan->due))
	{
		PendingRow *row = load(pending(scan->call), scan->due.probe.slot, context);

		scan->due.left_at = {row->claimable_at, scan->due.probe.entry};
		// The place of a lost lease is counted.
		if (row->claimable_at <= scan->call->now && (row->leased || take_place_in_key(&scan->limit, row->fair_key)))
			return row;
		scan->due_left--;
		pfree(row);
	}
	return nullptr;
}

// ---- from one to the next

void
leave_step(FairScan *scan)
{
	scan->standing = false;
	switch (scan->step)
	{
		case FairScan::next_priority:
			if (next_due_level(&scan->due))
				begin_turns(scan);
			else
				scan->step = FairScan::over;
			break;
		case FairScan::turns:
			remember_turn(scan);
			scan->current = scan->keys;
			scan->step = FairScan::shares;
			break;
		case FairScan::shares:
			scan->step = FairScan::by_time;
			break;
		case FairScan::by_time:
			if (scan->due.in_level && !scan->due.resting)
				rest_due_scan(&scan->due, {scan->due.level, scan->due.left_at});
			// Nothing else says that nothing can be leased.
			scan->patience = endless_patience;
			scan->due_left = 0;
			scan->step = scan->circled || !scan->in_vain ? FairScan::next_priority : FairScan::turns;
			break;
		case FairScan::over:
			break;
	}
}

PendingRow *
next_of_step(FairScan *scan, MemoryContext context)
{
	switch (scan->step)
	{
		case FairScan::turns:
			return next_turn(scan, context);
		case FairScan::shares:
			return next_of_shares(scan, context);
		case FairScan::by_time:
			return next_by_time(scan, context);
		case FairScan::next_priority:
		case FairScan::over:
			break;
	}
	return nullptr;
}

} // namespace

void
begin_fair_scan(FairScan *scan, Call *call, const Queue *queue)
{
	Table *table = pending(call);

	memset(scan, 0, sizeof(*scan));
	scan->call = call;
	scan->queue = queue;
	scan->context = CurrentMemoryContext;
	scan->given_to = static_cast<Share *>(palloc(sizeof(Share)));
	scan->room = 1;
	scan->index = own_index(table, pending_index::fair);
	begin_key_limit(&scan->limit, call, queue);
	begin_due_scan(&scan->due, call, queue);
	// Priorities do not rise in such a queue.
	scan->due.aged = nullptr;
	begin_probe(&scan->probe, table, scan->index, 4);
	remember_entries(&scan->probe);
}

void
begin_round(FairScan *scan, int wanted, bool in_vain)
{
	// What is only counted uses its places up.
	if (!scan->limit.looking)
		let_keys_go(&scan->limit);
	scan->wanted = wanted;
	scan->given = 0;
	scan->in_vain = in_vain;
	// The shares of the rest are others.
	scan->current = scan->keys;
}

PendingRow *
next_fair(FairScan *scan, MemoryContext context)
{
	PendingRow *row;

	while ((row = next_of_step(scan, context)) == nullptr && scan->step != FairScan::over)
	{
		// Rows that were gathered are still due in the eyes of the next step, and perhaps none of them can be leased.
		if (scan->given > 0 && (scan->step == FairScan::shares || scan->step == FairScan::by_time))
			return nullptr;
		leave_step(scan);
	}
	scan->given += row != nullptr;
	return row;
}

void
end_round(FairScan *scan)
{
	if (scan->step == FairScan::turns)
		remember_turn(scan);
	scan->standing = false;
	if (scan->started)
		rest_probe(&scan->probe);
	if (scan->due.in_level && !scan->due.resting)
		rest_due_scan(&scan->due, {scan->due.level, scan->due.left_at});
}

void
end_fair_scan(FairScan *scan)
{
	end_key_limit(&scan->limit);
	end_probe(&scan->probe);
	end_due_scan(&scan->due);
}

int
count_turns_due(Call *call, const Queue *queue, int most)
{
	FairScan scan;
	PendingRow *row;
	int count = 0;

	begin_fair_scan(&scan, call, queue);
	scan.limit.looking = true;
	do
	{
		begin_round(&scan, most - count, count == 0);
		while (count < most && (row = next_fair(&scan, CurrentMemoryContext)) != nullptr)
		{
			count++;
			pfree(row);
		}
		end_round(&scan);
	} while (count < most && scan.step != FairScan::over);
	end_fair_scan(&scan);
	return count;
}

} // namespace outbox
