// See closed.h.

#include "inbox/closed.h"

#include "rows/probe.h"

namespace outbox {

namespace {

// Sessions of many consumers forget all and look again.
constexpr long most_partitions = 1024;
// To look takes longer than to read, and a transaction may hold the lock for long.
constexpr uint32 calls_between_looks = 256;

struct Known {
	int32 number; // key of the hash table
	Oid heap;
	Oid index;
	uint32 calls; // while it was not known to be closed
	bool closed;
	bool empty;
	core::Uuid least;
	core::Uuid greatest;
};

HTAB *partitions;

// InvalidOid concerns all.
void
partition_changed(Datum, Oid rel)
{
	HASH_SEQ_STATUS all;

	hash_seq_init(&all, partitions);
	while (auto *known = static_cast<Known *>(hash_seq_search(&all)))
		if (!OidIsValid(rel) || known->heap == rel || known->index == rel)
			hash_search(partitions, &known->number, HASH_REMOVE, nullptr);
}

void
make_memory()
{
	HASHCTL control = {};

	control.keysize = sizeof(int32);
	control.entrysize = sizeof(Known);
	partitions = hash_create("inbox partitions", 16, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(partition_changed, 0);
}

const Known *
known_partition(int32 number)
{
	return partitions == nullptr ? nullptr
								 : static_cast<const Known *>(hash_search(partitions, &number, HASH_FIND, nullptr));
}

Known *
enter(int32 number, Oid heap)
{
	Known *known;
	bool found;

	if (partitions == nullptr)
		make_memory();
	if (hash_get_num_entries(partitions) >= most_partitions)
		partition_changed(0, InvalidOid);
	known = static_cast<Known *>(hash_search(partitions, &number, HASH_ENTER, &found));
	if (!found || known->heap != heap)
		*known = {number, heap, InvalidOid, 0, false, false, {}, {}};
	return known;
}

// The first or the last id of an index, also of a row that was rolled back. False: there is none.
bool
outermost_id(Relation heap, Relation index, ScanDirection direction, core::Uuid *id)
{
	Probe probe;
	bool found;

	begin_probe(&probe, heap, index, 0);
	remember_entries(&probe);
	start_probe(&probe, nullptr, 0);
	found = to_next_entry(&probe, direction);
	if (found)
		*id = to_uuid(entry_column(&probe, 1));
	end_probe(&probe);
	return found;
}

bool
is_within(const Known *known, const core::Uuid &id)
{
	return !known->empty && compare(known->least, id) <= 0 && compare(id, known->greatest) <= 0;
}

bool
has_entry(IndexScanDesc scan, TIDBitmap *found, const core::Uuid &id)
{
	ScanKeyData key;

	key_equals(&key, scan->indexRelation, 1, F_UUID_EQ, in_place(id));
	index_rescan(scan, &key, 1, nullptr, 0);
	return index_getbitmap(scan, found) > 0;
}

// Of those within the bounds.
bool
has_any_entry(const Known known, const core::Uuid *const *ids, int count)
{
	Relation index = index_open(known.index, NoLock);
	IndexScanDesc scan = begin_bitmap_scan(index, SnapshotAny, 1);
	TIDBitmap *entries = tbm_create(BLCKSZ, nullptr);
	bool found = false;

	for (int i = 0; i < count && !found; i++)
		found = is_within(&known, *ids[i]) && has_entry(scan, entries, *ids[i]);
	tbm_free(entries);
	index_endscan(scan);
	index_close(index, NoLock);
	return found;
}

} // namespace

bool
may_have(int32 number, const core::Uuid &id)
{
	const Known *known = known_partition(number);

	return known == nullptr || !known->closed || is_within(known, id);
}

bool
may_have_any(int32 number, const core::Uuid *const *ids, int count)
{
	const Known *known = known_partition(number);
	Oid index = known != nullptr ? known->index : InvalidOid;
	bool may = false;

	for (int i = 0; i < count && !may; i++)
		may = may_have(number, *ids[i]);
	// Another session that has locked it is at work on the table: that is waited for when the table is opened.
	if (!may || !OidIsValid(index) || !ConditionalLockRelationOid(index, AccessShareLock))
		return may;
	// The lock may have brought news of the table.
	known = known_partition(number);
	may = known == nullptr || known->index != index || has_any_entry(*known, ids, count);
	UnlockRelationOid(index, AccessShareLock);
	return may;
}

void
look_whether_closed(int32 number, Relation heap, Relation index)
{
	Oid oid = RelationGetRelid(heap);
	Known *known = enter(number, oid);
	core::Uuid least = {};
	core::Uuid greatest = {};
	bool empty;

	// A lock of our own would not keep us from another.
	if (known->closed || CheckRelationLockedByMe(heap, RowExclusiveLock, true))
		return;
	if (known->calls++ % calls_between_looks != 0 || !ConditionalLockRelationOid(oid, ShareLock))
		return;
	empty = !outermost_id(heap, index, ForwardScanDirection, &least) ||
			!outermost_id(heap, index, BackwardScanDirection, &greatest);
	UnlockRelationOid(oid, ShareLock);
	// The lock may have brought news of the table, and the entry be gone.
	*enter(number, oid) = {number, oid, RelationGetRelid(index), 0, true, empty, least, greatest};
}

} // namespace outbox
