// See gather.h.

#include "verbs/gather.h"

namespace outbox {

namespace {

// How many rows are read at a time at most while none of them can be leased.
constexpr int most_in_vain = 250;

// The row decides whether it is due, not the index that led to it.
int
gather_rows(DueScan *scan, const Claim *claim, Candidate *candidates, int most)
{
	Table *table = pending(scan->call);
	int count = 0;

	MemoryContextReset(claim->round);
	while (count < most && next_due(scan))
	{
		Candidate candidate = {};

		candidate.row = load(table, scan->probe.slot, claim->round);
		candidate.place = {scan->level, {candidate.row->claimable_at, scan->probe.entry}};
		if (candidate.row->claimable_at <= scan->call->now)
			candidates[count++] = candidate;
	}
	return count;
}

void
make_room(Gathered *gathered, int room)
{
	Size size = sizeof(Candidate) * static_cast<Size>(room);

	if (room <= gathered->room)
		return;
	gathered->candidates =
		static_cast<Candidate *>(gathered->candidates == nullptr ? palloc(size) : repalloc(gathered->candidates, size));
	gathered->room = room;
}

} // namespace

int
gather(DueScan *scan, Claim *claim, Gathered *gathered, int most)
{
	for (int size = most; !gathered->all; size = Max(size, Min(size * 2, most_in_vain)))
	{
		int count;
		int left;

		make_room(gathered, size);
		count = gather_rows(scan, claim, gathered->candidates, size);
		gathered->all = count < size;
		if (count == 0)
			break;
		rest_due_scan(scan, gathered->candidates[count - 1].place);
		left = find_messages(scan->call, claim, gathered->candidates, count);
		if (left > most)
		{
			gathered->all = false;
			rest_due_scan(scan, gathered->candidates[most - 1].place);
		}
		if (left > 0)
			return Min(left, most);
	}
	return 0;
}

int
gather_in_turn(FairScan *scan, Claim *claim, Gathered *gathered, int most)
{
	int left = 0;

	make_room(gathered, most);
	while (left == 0 && scan->step != FairScan::over)
	{
		PendingRow *row;
		int count = 0;

		MemoryContextReset(claim->round);
		begin_round(scan, most, claim->taken == 0);
		while (count < most && (row = next_fair(scan, claim->round)) != nullptr)
		{
			gathered->candidates[count] = {};
			gathered->candidates[count++].row = row;
		}
		end_round(scan);
		left = count > 0 ? find_messages(scan->call, claim, gathered->candidates, count) : 0;
	}
	return left;
}

} // namespace outbox
