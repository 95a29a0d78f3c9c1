// The sweep below a floor (floor.h): finds live rows that no commit announced.
//
// Guarantees: each step looks at a limited number of entries, or at all entries of one key if
// there are more, so that the sweep reaches its end and starts again. The first live row that
// it finds lowers the floor.
#pragma once

#include "commit/floor.h"
#include "rows/probe.h"

namespace outbox {

// at: where it was left, DT_NOBEGIN for the beginning. start(from, to) puts the probe to the
// entries with these keys; the key is the index's column of that number; key() is that of the row found.
template <typename Start, typename Key>
void
sweep_below(Floor *floor, TimestampTz *at, Probe *probe, int column, int entries_a_time, const Start &start,
			const Key &key)
{
	TimestampTz end = floor_at(floor);
	TimestampTz reached = *at;
	Walk walk = Walk::tired;

	// It is unknown what lies below, so no entry is skipped.
	if (end <= MIN_TIMESTAMP)
		return;
	start(*at, end == DT_NOEND ? end : end - 1);
	while (walk == Walk::tired && reached == *at)
	{
		int entries = entries_a_time;

		CHECK_FOR_INTERRUPTS();
		walk = next_settled_within(probe, &entries);
		if (walk == Walk::tired)
			reached = DatumGetTimestampTz(entry_column(probe, column));
	}
	if (walk == Walk::row)
		lower(floor, key());
	*at = walk == Walk::tired ? reached : DT_NOBEGIN;
}

} // namespace outbox
