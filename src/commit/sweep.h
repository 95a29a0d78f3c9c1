// The sweep below a floor (floor.h): finds live rows that no commit announced.
//
// Guarantees: each step looks at a limited number of entries, or at all entries of one key if
// there are more, so that the sweep reaches its end and starts again. The first live row that
// it finds lowers the floor.
#pragma once

#include "commit/floor.h"
#include "rows/probe.h"

namespace outbox {

// at: where the last step ended; DT_NOBEGIN for the beginning. start(from, to) starts the probe on
// entries with these keys. column: the key's place in the index. key(): the key of the row found.
template <typename Start, typename Key>
void
sweep_below(Floor *floor, TimestampTz *at, Probe *probe, int column, int entries_a_time, const Start &start,
			const Key &key)
{
	TimestampTz end = floor_at(floor);
	TimestampTz reached = *at;
	Walk walk = Walk::tired;

	// Scans skip no entry: there is nothing to sweep.
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
