// Finds the rows of many messages by one walk along the primary key, instead of a descent for each.
//
// Messages that a worker handles together were mostly enqueued together, so the entries of their
// ids are neighbours. If they are not, the walk tires after a few entries for each id, and the
// caller looks the rest up one by one.
//
// Guarantees: those of a probe (probe.h), at the moment the walk reads a page. That may be before
// it is asked for a row of the page. So "absent" is certain only for rows that cannot have been
// inserted since the walk began, and "found" only until the caller changes the row (lease.h).
//
// A walk keeps a page pinned: end it before you wait for anything.
#pragma once

#include "rows/table.h"

namespace outbox {

struct IdWalk {
	Table *table;
	Probe probe;
	int entries; // that it may still read
	bool over;   // the last row was passed
	bool tired;
	bool ahead; // the slot holds a row that was not asked for yet: of
	core::Uuid id;
};

// From this number of ids on a walk costs less than their descents.
constexpr int ids_to_walk = 8;

// For count ids from first to last. Both must stay in memory until the walk ends.
void begin_id_walk(IdWalk *walk, Table *table, const core::Uuid &first, const core::Uuid &last, int count);
// The id's next settled row is in the probe's slot; ids must ascend.
enum class WalkedTo { found, absent, unknown };
WalkedTo walk_to(IdWalk *walk, const core::Uuid &id);
void end_id_walk(IdWalk *walk);

// act(leaf, first, n): for each run of items in one leaf that is long enough for a walk.
template <typename LeafAt, typename Act>
void
each_walk(int count, const LeafAt &leaf_at, const Act &act)
{
	for (int first = 0, end; first < count; first = end)
	{
		Table *leaf = leaf_at(first);

		for (end = first + 1; end < count && leaf_at(end) == leaf;)
			end++;
		if (end - first >= ids_to_walk)
			act(leaf, first, end - first);
	}
}

} // namespace outbox
