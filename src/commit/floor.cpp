// See floor.h.

#include "commit/floor.h"

#include "commit/spinlock.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// The floor that this process is raising: an error gives it up.
Floor *raising;

// If the slot has passed to another queue, another process may have taken the floor.
void
release(Floor *floor)
{
	under(&floor->lock, [=] { floor->raiser = floor->raiser == process_number() + 1 ? 0 : floor->raiser; });
	raising = nullptr;
}

} // namespace

void
lower(Floor *floor, TimestampTz key)
{
	under(&floor->lock, [=] {
		floor->at = Min(floor->at, key);
		floor->noted = Min(floor->noted, key);
	});
}

void
init_floor(Floor *floor)
{
	SpinLockInit(&floor->lock);
	reset_floor(floor);
}

void
reset_floor(Floor *floor)
{
	under(&floor->lock, [=] {
		floor->at = DT_NOBEGIN;
		floor->noted = DT_NOEND;
		floor->raiser = 0;
	});
}

TimestampTz
floor_at(Floor *floor)
{
	TimestampTz at;

	under(&floor->lock, [&] { at = floor->at; });
	return at;
}

TimestampTz
begin_at_floor(FloorScan *scan, Floor *floor, TimestampTz made, TimestampTz removed)
{
	TimestampTz at;
	bool taken = false;

	scan->floor = nullptr;
	if (floor == nullptr)
		return DT_NOBEGIN;
	OUTBOX_STOP_POINT("raise_before_taken");
	under(&floor->lock, [&] {
		at = floor->at;
		taken = at != DT_NOEND && made >= at && floor->raiser == 0 && raising == nullptr;
		if (!taken)
			return;
		floor->raiser = process_number() + 1;
		floor->noted = DT_NOEND;
	});
	if (taken)
	{
		scan->floor = raising = floor;
		scan->most = removed;
		OUTBOX_STOP_POINT("raise_taken");
	}
	return Min(made, at);
}

void
raise_floor(FloorScan *scan, TimestampTz key)
{
	Floor *floor = scan->floor;

	if (floor == nullptr)
		return;
	key = Min(key, scan->most);
	OUTBOX_STOP_POINT("raise_before_set");
	under(&floor->lock, [=] {
		if (floor->raiser == process_number() + 1)
			floor->at = Max(floor->at, Min(key, floor->noted));
	});
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
