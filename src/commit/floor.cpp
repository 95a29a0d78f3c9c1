// See floor.h.

#include "commit/floor.h"

#include "commit/announced.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// That this process is raising, so that an error leaves none taken.
Floor *raising;

void
release(Floor *floor)
{
	uint32 mine = process_number() + 1;

	// Not if the slot was given to another queue meanwhile: then somebody else may have it.
	pg_atomic_compare_exchange_u32(&floor->raiser, &mine, 0);
	raising = nullptr;
}

bool
take(Floor *floor)
{
	uint32 free = 0;

	if (raising != nullptr || pg_atomic_read_u32(&floor->raiser) != 0 ||
		!pg_atomic_compare_exchange_u32(&floor->raiser, &free, process_number() + 1))
		return false;
	raising = floor;
	return true;
}

} // namespace

void
lower(Floor *floor, TimestampTz key)
{
	announce(&floor->noted, key);
	OUTBOX_STOP_POINT("lower_after_noted");
	announce(&floor->at, key);
}

void
init_floor(Floor *floor, uint32 time)
{
	// Far below every timestamp.
	pg_atomic_init_u64(&floor->at, static_cast<uint64>(DT_NOBEGIN + static_cast<TimestampTz>(time)));
	pg_atomic_init_u64(&floor->noted, static_cast<uint64>(DT_NOEND));
	pg_atomic_init_u32(&floor->raiser, 0);
}

void
init_floors(Floor *floors, uint32 time)
{
	for (int i = 0; i < priorities; i++)
		init_floor(&floors[i], time);
}

// In this order: who raises looks at `noted` before anybody empties it again.
TimestampTz
floor_at(Floor *floor)
{
	TimestampTz noted = announced(&floor->noted);

	pg_read_barrier();
	return Min(noted, announced(&floor->at));
}

TimestampTz
begin_at_floor(FloorScan *scan, Floor *floor, TimestampTz made, TimestampTz removed)
{
	TimestampTz at;

	scan->floor = nullptr;
	if (floor == nullptr)
		return DT_NOBEGIN;
	at = floor_at(floor);
	if (at == DT_NOEND || made < at || !take(floor))
		return Min(made, at);
	scan->floor = floor;
	scan->most = removed;
	OUTBOX_STOP_POINT("raise_before_emptied");
	pg_atomic_exchange_u64(&floor->noted, static_cast<uint64>(DT_NOEND));
	scan->began_at = announced(&floor->at);
	return Min(made, scan->began_at);
}

void
raise_floor(FloorScan *scan, TimestampTz key)
{
	Floor *floor = scan->floor;
	uint64 expected = static_cast<uint64>(scan->began_at);

	if (floor == nullptr)
		return;
	key = Min(key, scan->most);
	OUTBOX_STOP_POINT("raise_before_set");
	if (key > scan->began_at && pg_atomic_compare_exchange_u64(&floor->at, &expected, static_cast<uint64>(key)))
	{
		// No interrupt is served here: who ended now would leave the floor too high.
		OUTBOX_STOP_POINT("raise_before_look");
		announce(&floor->at, announced(&floor->noted));
	}
	leave_floor(scan);
}

void
leave_floor(FloorScan *scan)
{
	if (scan->floor != nullptr)
		release(scan->floor);
	scan->floor = nullptr;
}

void
give_up_raising()
{
	if (raising != nullptr)
		release(raising);
}

} // namespace outbox
