// The rows of many messages by one walk along the primary key, instead of a descent for each.
//
// What a worker handles together was mostly enqueued together, so the entries of its ids lie
// side by side. Where they do not, the walk tires after a few entries an id, and the caller
// looks the rest up one by one.
//
// Guarantees: as a probe's (probe.h), as of the moment in which the walk reads a page, which may
// be before it is asked for a row on it. So "absent" holds only of rows that cannot have come
// since the walk began; "found" only until the caller changes the row (lease.h).
//
// A walk that stands on a page keeps it pinned: end it before anything is waited for.
#pragma once

#include "rows/table.h"

namespace outbox {

struct IdWalk {
	Table *table;
	Probe probe;
	int entries; // it still looks at
	bool over;   // the last row was passed
	bool tired;
	bool ahead; // the slot holds a row that was not asked for yet: that of
	core::Uuid id;
};

// From so few ids on a walk costs less than their descents.
constexpr int ids_to_walk = 8;

// Of count ids, first is the least and last the greatest; both stay where they are until it ends.
void begin_id_walk(IdWalk *walk, Table *table, const core::Uuid &first, const core::Uuid &last, int count);
// The id's next settled row is in the probe's slot; ids must ascend.
enum class WalkedTo { found, absent, unknown };
WalkedTo walk_to(IdWalk *walk, const core::Uuid &id);
void end_id_walk(IdWalk *walk);

// act(leaf, first, n): items that follow each other in one leaf, where they are worth a walk.
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
