// See due.h. A queue is read priority by priority. Its floors tell which priorities have rows;
// without floors, one descent finds the next priority in use.
//
// With aging the priorities are merged. Each is in order already, since the effective priority falls with the time at
// which a row became claimable. Of each a time is known before which none of its rows is still to come: its floor at
// first. The priority whose row of that time would come first is read, for as long as its rows come before those that
// the others may have; then the next one is chosen. So a priority whose rows cannot come first is not read at all.
// Where a walk stands follows from the last row that it has returned: all that come before it are passed.

#include "message/due.h"

#include "commit/shared.h"
#include "commit/sweep.h"
#include "core/aging.h"

namespace outbox {

namespace {

constexpr int most_priority = priorities - 1;

// Dead entries that a walk of the worker reads at once.
constexpr int entries_to_prove_empty = 64;
constexpr int entries_to_next_due = 5000;
constexpr int entries_a_sweep = 5000;

// Starts at the rows of those priorities and times.
void
start_at(DueScan *scan, StrategyNumber level_strategy, RegProcedure level_operator, TimestampTz from, TimestampTz to)
{
	ScanKeyData keys[4];

	key_equals(&keys[0], scan->index, 1, F_TEXTEQ, PointerGetDatum(scan->queue->name));
	key_compares(&keys[1], scan->index, 2, level_strategy, level_operator,
				 Int16GetDatum(static_cast<int16>(scan->level)));
	key_compares(&keys[2], scan->index, 3, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from));
	key_compares(&keys[3], scan->index, 3, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(to));
	start_probe(&scan->probe, keys, 4);
}

void
start_in_level(DueScan *scan, TimestampTz from, TimestampTz to)
{
	start_at(scan, BTEqualStrategyNumber, F_INT2EQ, from, to);
}

// Moves on to the greatest priority below the current one that the queue holds.
bool
find_level(DueScan *scan)
{
	Table *table = pending(scan->call);
	bool isnull;

	// The index is descending in priority: its strategies are reversed.
	start_at(scan, BTLessStrategyNumber, F_INT2LT, DT_NOBEGIN, DT_NOEND);
	if (!next_row(&scan->probe))
	{
		rest_probe(&scan->probe);
		return false;
	}
	scan->level = DatumGetInt16(table->get(scan->probe.slot, pending_col::priority, &isnull));
	return true;
}

// The next priority that may hold rows, and from where on.
bool
move_on(DueScan *scan, TimestampTz *from)
{
	if (scan->ref.slot == nullptr)
	{
		*from = DT_NOBEGIN;
		return find_level(scan);
	}
	scan->level = Min(scan->level, priorities);
	while (--scan->level >= 0)
	{
		*from = begin_at_due_floor(&scan->floor, scan->ref, scan->queue->name, scan->level);
		if (is_made_anew(pending(scan->call)->rel))
			leave_floor(&scan->floor);
		if (*from != DT_NOEND)
			return true;
		leave_floor(&scan->floor);
	}
	return false;
}

bool
next_level(DueScan *scan)
{
	TimestampTz from;

	if (!move_on(scan, &from))
		return false;
	start_in_level(scan, from, scan->call->now);
	scan->in_level = true;
	return true;
}

// Where the row in the slot stands in the index.
TimestampTz
place_in_level(DueScan *scan)
{
	Table *table = pending(scan->call);
	bool isnull;
	TimestampTz next_attempt = DatumGetTimestampTz(table->get(scan->probe.slot, pending_col::next_attempt_at, &isnull));
	Datum expiry = table->get(scan->probe.slot, pending_col::lease_expires_at, &isnull);

	return claimable_at(next_attempt, !isnull, DatumGetTimestampTz(expiry));
}

// Nothing of the level is due.
void
raise_over_due(DueScan *scan)
{
	int entries = entries_to_prove_empty;

	if (scan->floor.floor == nullptr)
		return;
	start_in_level(scan, scan->call->now, DT_NOEND);
	raise_floor(&scan->floor, next_settled_within(&scan->probe, &entries) == Walk::end ? DT_NOEND : scan->call->now);
}

} // namespace

// Of a queue with priority_aging: its levels, as far as they are known.
struct AgedLevels {
	TimestampTz from[priorities];  // at the beginning
	TimestampTz least[priorities]; // no row that is still to come lies below; DT_NOEND: there is none
	TimestampTz end;               // below it the rows of the current level come before those of all others
};

namespace {

void
begin_scan(DueScan *scan, Call *call, const Queue *queue)
{
	Table *table = pending(call);

	memset(scan, 0, sizeof(*scan));
	scan->call = call;
	scan->queue = queue;
	scan->index = own_index(table, pending_index::due);
	scan->level = PG_INT16_MAX;
	scan->ref = queue_ref(text_to_cstring(queue->name));
	begin_probe(&scan->probe, table, scan->index, 4);
}

// The first live row of the level. A row in the wrong place raises no floor.
void
raise_to_row(DueScan *scan)
{
	TimestampTz key = place_in_level(scan);

	if (key > scan->call->now)
		leave_floor(&scan->floor);
	raise_floor(&scan->floor, key);
}

// Whether the row in the slot was met before the walk was left.
bool
was_met(DueScan *scan)
{
	scan->resumed = scan->resumed && !is_behind(&scan->probe, place_in_level(scan), &scan->left_at);
	return scan->resumed;
}

// ---- priorities that rise

// The floors, or else where the first rows stand.
void
find_bounds(DueScan *scan)
{
	TimestampTz *from = scan->aged->from;

	for (int level = 0; level < priorities; level++)
		from[level] = scan->ref.slot != nullptr ? due_floor(scan->ref, scan->queue->name, level) : DT_NOEND;
	while (scan->ref.slot == nullptr && find_level(scan))
		if (scan->level >= 0 && scan->level < priorities)
			from[scan->level] = place_in_level(scan);
	memcpy(scan->aged->least, from, sizeof(scan->aged->least));
}

// The level whose next row may come before those of all others. False: nothing is due.
bool
choose_level(DueScan *scan)
{
	constexpr core::Rank none = {-1, -1};
	AgedLevels *aged = scan->aged;
	TimestampTz now = scan->call->now;
	int64 aging = scan->queue->priority_aging_us;
	core::Rank first = none;
	core::Rank second = none;

	for (int level = 0; level < priorities; level++)
	{
		core::Rank rank = aged->least[level] > now ? none : core::rank_of(level, aged->least[level], now, aging);

		if (comes_before(rank, first))
		{
			second = first;
			first = rank;
		}
		else if (comes_before(rank, second))
			second = rank;
	}
	scan->level = first.priority;
	aged->end = core::end_of_those_before(second, first.priority, now, aging);
	return scan->level >= 0;
}

// The floor is raised only by a walk that begins there.
bool
enter_level(DueScan *scan)
{
	TimestampTz from;

	if (!choose_level(scan))
		return false;
	from = scan->aged->least[scan->level];
	if (scan->ref.slot != nullptr)
	{
		TimestampTz floor = begin_at_due_floor(&scan->floor, scan->ref, scan->queue->name, scan->level);

		if (floor < from || is_made_anew(pending(scan->call)->rel))
			leave_floor(&scan->floor);
		from = Max(from, floor);
	}
	start_in_level(scan, from, scan->call->now);
	scan->in_level = true;
	return true;
}

// The next row of the level that comes before those of all others. If there is none, says from where on there may be
// some later.
bool
next_in_level(DueScan *scan, TimestampTz *least)
{
	while (next_settled(&scan->probe, ForwardScanDirection))
	{
		TimestampTz key = place_in_level(scan);

		CHECK_FOR_INTERRUPTS();
		if (scan->floor.floor != nullptr)
			raise_to_row(scan);
		// A row in the wrong place is none that is due.
		if ((scan->resumed && was_met(scan)) || key > scan->call->now)
			continue;
		*least = key;
		if (key >= scan->aged->end)
			return false;
		if (!TransactionIdIsValid(scan->probe.changer()))
			return true;
	}
	raise_over_due(scan);
	*least = DT_NOEND;
	return false;
}

bool
next_aged(DueScan *scan)
{
	while (scan->in_level || enter_level(scan))
	{
		TimestampTz least;

		if (next_in_level(scan, &least))
			return true;
		scan->aged->least[scan->level] = least;
		scan->in_level = scan->resumed = false;
	}
	return false;
}

// All that comes before that row is passed.
void
rest_aged(DueScan *scan, const DuePlace &place)
{
	AgedLevels *aged = scan->aged;
	TimestampTz now = scan->call->now;
	int64 aging = scan->queue->priority_aging_us;
	core::Rank rank = core::rank_of(place.level, place.place.key, now, aging);

	for (int level = 0; level < priorities; level++)
		aged->least[level] = Max(aged->from[level], core::end_of_those_before(rank, level, now, aging));
	aged->least[place.level] = place.place.key;
	scan->in_level = false;
}

} // namespace

void
begin_due_scan(DueScan *scan, Call *call, const Queue *queue)
{
	begin_scan(scan, call, queue);
	if (queue->priority_aging_us <= 0)
		return;
	scan->aged = static_cast<AgedLevels *>(palloc(sizeof(AgedLevels)));
	find_bounds(scan);
}

bool
next_due_in_level(DueScan *scan)
{
	if (!scan->in_level)
		return false;
	if (scan->resting)
		start_in_level(scan, scan->left_at.key, scan->call->now);
	scan->resting = false;
	while (next_settled(&scan->probe, ForwardScanDirection))
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->floor.floor != nullptr)
			raise_to_row(scan);
		if (scan->resumed && was_met(scan))
			continue;
		if (!TransactionIdIsValid(scan->probe.changer()))
			return true;
	}
	raise_over_due(scan);
	rest_probe(&scan->probe);
	scan->in_level = scan->resumed = false;
	return false;
}

bool
next_due(DueScan *scan)
{
	if (scan->aged != nullptr)
		return next_aged(scan);
	do
		if (next_due_in_level(scan))
			return true;
	while (next_level(scan));
	return false;
}

bool
next_due_level(DueScan *scan)
{
	scan->in_level = scan->resting = scan->resumed = false;
	if (!next_due(scan))
		return false;
	leave_floor(&scan->floor);
	scan->left_at.key = place_in_level(scan);
	rest_probe(&scan->probe);
	scan->resting = true;
	return true;
}

void
rest_due_scan(DueScan *scan, const DuePlace &place)
{
	leave_floor(&scan->floor);
	rest_probe(&scan->probe);
	scan->level = place.level;
	scan->left_at = place.place;
	scan->in_level = scan->resting = scan->resumed = true;
	if (scan->aged != nullptr)
		rest_aged(scan, place);
}

void
end_due_scan(DueScan *scan)
{
	leave_floor(&scan->floor);
	end_probe(&scan->probe);
	if (scan->aged != nullptr)
		pfree(scan->aged);
}

int
count_due(Call *call, const Queue *queue, int most)
{
	DueScan scan;
	int count = 0;

	begin_scan(&scan, call, queue);
	while (count < most && next_due(&scan))
		count++;
	end_due_scan(&scan);
	return count;
}

bool
has_due(Call *call, const Queue *queue)
{
	return count_due(call, queue, 1) > 0;
}

TimestampTz
next_due_after(Call *call, const Queue *queue, TimestampTz after)
{
	TimestampTz earliest = DT_NOEND;
	TimestampTz from;
	DueScan scan;

	begin_scan(&scan, call, queue);
	remember_entries(&scan.probe);
	while (move_on(&scan, &from))
	{
		int entries = entries_to_next_due;
		Walk walk;

		leave_floor(&scan.floor);
		start_in_level(&scan, Max(from, after == DT_NOBEGIN ? after : after + 1), DT_NOEND);
		walk = next_settled_within(&scan.probe, &entries);
		if (walk == Walk::row)
			earliest = Min(earliest, place_in_level(&scan));
		else if (walk == Walk::tired)
			earliest = Min(earliest, DatumGetTimestampTz(entry_column(&scan.probe, 3)));
	}
	end_due_scan(&scan);
	return earliest;
}

namespace {

// Where the sweep of a slot's floors is: DT_NOBEGIN at the beginning.
struct Sweep {
	uint32 generation;
	TimestampTz at[priorities];
};

Sweep *
sweep_of(QueueSlot *slot)
{
	static Sweep *sweeps;
	uint32 generation = pg_atomic_read_u32(&slot->generation);
	Sweep *sweep;

	if (sweeps == nullptr)
		sweeps = static_cast<Sweep *>(
			MemoryContextAllocZero(TopMemoryContext, sizeof(Sweep) * static_cast<Size>(shared->queue_slots)));
	sweep = &sweeps[slot_number(slot)];
	if (sweep->generation == generation)
		return sweep;
	sweep->generation = generation;
	for (TimestampTz &at : sweep->at)
		at = DT_NOBEGIN;
	return sweep;
}

} // namespace

void
sweep_due(Call *call, const Queue *queue)
{
	DueScan scan;

	begin_scan(&scan, call, queue);
	remember_entries(&scan.probe);
	for (scan.level = scan.ref.slot != nullptr ? most_priority : -1; scan.level >= 0; scan.level--)
		sweep_below(
			&scan.ref.slot->due_floors[scan.level], &sweep_of(scan.ref.slot)->at[scan.level], &scan.probe, 3,
			entries_a_sweep, [&](TimestampTz from, TimestampTz to) { start_in_level(&scan, from, to); },
			[&] { return place_in_level(&scan); });
	end_due_scan(&scan);
}

} // namespace outbox
