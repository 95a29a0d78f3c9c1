// See candidate.h.

#include "verbs/candidate.h"

#include "message/audit_notes.h"

#include <algorithm>

#include "rows/id_walk.h"

namespace outbox {

namespace {

// A claim returns the message, so the message is read first. A row without its message, or with one
// that this statement may not see, is skipped untouched.
HeapTuple
visible(const Claim *claim, const Table *leaf, TupleTableSlot *slot)
{
	MemoryContext outer;
	HeapTuple message;

	if (!table_tuple_satisfies_snapshot(leaf->rel, slot, claim->snapshot))
		return nullptr;
	outer = MemoryContextSwitchTo(claim->round);
	message = ExecCopySlotHeapTuple(slot);
	MemoryContextSwitchTo(outer);
	return message;
}

HeapTuple
visible_message(const Claim *claim, Table *leaf, const core::Uuid &id)
{
	HeapTuple message = nullptr;
	Probe *probe = probe_id(leaf, id);

	if (next_settled(probe, ForwardScanDirection))
		message = visible(claim, leaf, probe->slot);
	rest_probe(probe);
	return message;
}

// Those of one leaf, in the order of their ids.
void
walk_messages(const Claim *claim, Table *leaf, Candidate **candidates, int count)
{
	IdWalk walk;

	begin_id_walk(&walk, leaf, candidates[0]->row->id, candidates[count - 1]->row->id, count);
	for (int i = 0; i < count; i++)
		if (walk_to(&walk, candidates[i]->row->id) == WalkedTo::found)
			candidates[i]->message = visible(claim, leaf, walk.probe.slot);
	end_id_walk(&walk);
}

void
walk_all_messages(const Claim *claim, Candidate *candidates, int count)
{
	Candidate **sorted = static_cast<Candidate **>(palloc(sizeof(Candidate *) * static_cast<Size>(count)));

	for (int i = 0; i < count; i++)
		sorted[i] = &candidates[i];
	std::sort(sorted, sorted + count,
			  [](const Candidate *a, const Candidate *b) { return compare(a->row->id, b->row->id) < 0; });
	each_walk(
		count, [&](int i) { return sorted[i]->leaf; },
		[&](Table *leaf, int first, int n) { walk_messages(claim, leaf, sorted + first, n); });
	pfree(sorted);
}

// Drops candidates without a partition. Returns how many are left.
int
route_all(Call *call, Claim *claim, Candidate *candidates, int count)
{
	int left = 0;

	for (int i = 0; i < count; i++)
	{
		const PendingRow *row = candidates[i].row;

		candidates[i].leaf = find_leaf(call, messages_shape, row->id, reads);
		if (candidates[i].leaf == nullptr || (row->leased && !OidIsValid(leaf_now(call, attempts_shape, row->id))))
			note_unrouted(&claim->unrouted, row->id);
		else
			candidates[left++] = candidates[i];
	}
	return left;
}

} // namespace

int
find_messages(Call *call, Claim *claim, Candidate *candidates, int count)
{
	int left = 0;

	count = route_all(call, claim, candidates, count);
	walk_all_messages(claim, candidates, count);
	for (int i = 0; i < count; i++)
	{
		Candidate *candidate = &candidates[i];

		if (candidate->message == nullptr)
			candidate->message = visible_message(claim, candidate->leaf, candidate->row->id);
		if (candidate->message != nullptr)
			candidates[left++] = *candidate;
	}
	return left;
}

void
note_taken(Call *call, const Claim *claim, const Candidate *candidate)
{
	note_audited(call, {Audited::claimed, candidate->row->queue, claim->worker, candidate->row->id,
						candidate->attempt_count + 1, candidate->expires_at});
}

} // namespace outbox
