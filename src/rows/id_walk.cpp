// See id_walk.h.

#include "rows/id_walk.h"

#include "server/values.h"

namespace outbox {

namespace {

// The entry of a live row, and those of its old versions.
constexpr int entries_an_id = 4;

// Column 0 is outbox_id in every shape that is walked.
core::Uuid
id_in_slot(const IdWalk *walk)
{
	bool isnull;

	return to_uuid(walk->table->get(walk->probe.slot, 0, &isnull));
}

// Moves to the next settled row of any id.
bool
advance_walk(IdWalk *walk)
{
	if (walk->ahead)
		return true;
	if (walk->over || walk->tired)
		return false;
	switch (next_settled_within(&walk->probe, &walk->entries))
	{
		case Walk::row:
			walk->id = id_in_slot(walk);
			return true;
		case Walk::end:
			walk->over = true;
			return false;
		case Walk::tired:
			walk->tired = true;
			return false;
	}
	return false;
}

} // namespace

void
begin_id_walk(IdWalk *walk, Table *table, const core::Uuid &first, const core::Uuid &last, int count)
{
	Relation index = primary_index(table);
	ScanKeyData keys[2];

	walk->table = table;
	walk->entries = entries_an_id * count;
	walk->over = false;
	walk->tired = false;
	walk->ahead = false;
	begin_probe(&walk->probe, table, index, 2);
	key_compares(&keys[0], index, 1, BTGreaterEqualStrategyNumber, F_UUID_GE, in_place(first));
	key_compares(&keys[1], index, 1, BTLessEqualStrategyNumber, F_UUID_LE, in_place(last));
	start_probe(&walk->probe, keys, 2);
}

WalkedTo
walk_to(IdWalk *walk, const core::Uuid &id)
{
	while (advance_walk(walk))
	{
		int order = compare(walk->id, id);

		walk->ahead = order > 0;
		if (order >= 0)
			return order == 0 ? WalkedTo::found : WalkedTo::absent;
	}
	return walk->over ? WalkedTo::absent : WalkedTo::unknown;
}

void
end_id_walk(IdWalk *walk)
{
	end_probe(&walk->probe);
}

} // namespace outbox
