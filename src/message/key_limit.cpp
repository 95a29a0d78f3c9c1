// See key_limit.h.

#include "message/key_limit.h"

#include "commit/taken_keys.h"
#include "message/id_set.h"
#include "message/key_marks.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// What is known of a key.
struct Places {
	int64 key;
	int left;
	bool locked;
};

// ---- counting

// Those that open transactions make or clear, too; no more than are needed to know. True: it has passed over entries,
// and may have missed a row that was changed meanwhile.
bool
find_leases(KeyLimit *limit, ScanKey key, IdSet *found)
{
	Table *table = pending(limit->call);
	Probe *probe = limit->leases;
	int64 rows = 0;
	bool isnull;

	start_probe(probe, key, 1);
	// Two versions of a row at most are seen.
	while (found->count < int64{2} * limit->queue->max_in_flight_per_key && next_row(probe))
	{
		CHECK_FOR_INTERRUPTS();
		rows++;
		put_id(found, to_uuid(table->get(probe->slot, pending_col::outbox_id, &isnull)));
	}
	rest_probe(probe);
	return probe->entries > rows;
}

// A snapshot misses none that is committed.
void
find_committed_leases(KeyLimit *limit, ScanKey key, IdSet *found)
{
	Table *table = pending(limit->call);
	Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = begin_index_scan(table->rel, limit->leases->scan->indexRelation, SnapshotAny, 1);
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	bool isnull;

	latest->curcid = PG_UINT32_MAX;
	index_rescan(scan, key, 1, nullptr, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (table_tuple_satisfies_snapshot(table->rel, slot, latest))
			put_id(found, to_uuid(table->get(slot, pending_col::outbox_id, &isnull)));
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(latest);
}

int
count_leases_of_key(KeyLimit *limit, int64 fair_key)
{
	IdSet found = make_id_set();
	ScanKeyData key;
	bool missed;

	key_equals(&key, limit->leases->scan->indexRelation, 1, F_INT8EQ, Int64GetDatum(fair_key));
	missed = find_leases(limit, &key, &found);
	OUTBOX_STOP_POINT("key_leases_found");
	if (drop_doubles(&found) < limit->queue->max_in_flight_per_key && missed)
	{
		find_committed_leases(limit, &key, &found);
		drop_doubles(&found);
	}
	pfree(found.ids);
	return found.count;
}

// ---- locking

// Of a class of its own: nothing else locks rows of outbox.pending in this way.
LOCKTAG
tag_of_key(const KeyLimit *limit, int64 key)
{
	uint64 bits = static_cast<uint64>(key);
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationGetRelid(pending(limit->call)->rel), static_cast<uint32>(bits >> 16),
					   static_cast<uint16>(bits));
	return tag;
}

bool
try_to_lock_key(const KeyLimit *limit, int64 key)
{
	LOCKTAG tag = tag_of_key(limit, key);
	auto lock = [&] { return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL; };
	bool locked = lock();

	if (!locked)
	{
		// A claim that lets go of the key from now on wakes the sessions that wait.
		announce_contended_key(limit->slot);
		locked = lock();
	}
	if (locked)
		note_key_locked(limit->slot);
	return locked;
}

void
unlock_key_of_limit(const KeyLimit *limit, Places *places)
{
	LOCKTAG tag = tag_of_key(limit, places->key);

	if (places->locked)
		LockRelease(&tag, ExclusiveLock, false);
	places->locked = false;
}

void
look_at_key(KeyLimit *limit, Places *places)
{
	int most = limit->queue->max_in_flight_per_key;
	int out;

	places->left = 0;
	places->locked = !limit->looking && try_to_lock_key(limit, places->key);
	if (!places->locked && !limit->looking)
		return;
	out = count_leases_of_key(limit, places->key);
	OUTBOX_STOP_POINT("key_counted");
	// A lease that ends from now on wakes the sessions that wait. If another claim has announced a key meanwhile, that
	// need not be this one.
	if (out >= most && (announce_full_key(limit->slot) || !limit->announced))
	{
		limit->announced = true;
		out = count_leases_of_key(limit, places->key);
	}
	places->left = Max(most - out, 0);
	// A claim may meet more full keys than the server has locks for.
	if (places->left == 0)
		unlock_key_of_limit(limit, places);
}

HTAB *
make_places(const KeyLimit *limit)
{
	HASHCTL ctl = {};

	ctl.keysize = sizeof(int64);
	ctl.entrysize = sizeof(Places);
	// Not that of the caller, which may be reset before the keys are let go.
	ctl.hcxt = limit->call->estate->es_query_cxt;
	return hash_create("outbox keys of a claim", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

} // namespace

int64
fair_key_of(const Queue *queue, const text *partition_key)
{
	uint64 mask = (uint64{1} << fair_key_bits) - 1;

	if (partition_key == nullptr)
		return queue->fair_base;
	return queue->fair_base +
		   Max(static_cast<int64>(leading_bits(digest_of_key(queue->name, partition_key)) & mask), 1);
}

void
begin_key_limit(KeyLimit *limit, Call *call, const Queue *queue)
{
	Relation index;

	*limit = {call, queue, nullptr, nullptr, nullptr, false, false};
	if (queue->max_in_flight_per_key == 0)
		return;
	limit->slot = queue_ref(text_to_cstring(queue->name)).slot;
	// Not while another probe stands on a row.
	index = own_index(pending(call), pending_index::fair_lease);
	limit->leases = static_cast<Probe *>(palloc(sizeof(Probe)));
	begin_probe(limit->leases, pending(call), index, 1);
}

bool
take_place_in_key(KeyLimit *limit, int64 fair_key)
{
	Places *places;
	bool found;

	if (limit->leases == nullptr || fair_key >= 0 || fair_key == limit->queue->fair_base)
		return true;
	if (limit->places == nullptr)
		limit->places = make_places(limit);
	places = static_cast<Places *>(hash_search(limit->places, &fair_key, HASH_ENTER, &found));
	if (!found)
		look_at_key(limit, places);
	if (places->left == 0)
		return false;
	places->left--;
	if (!limit->looking)
		note_key_taken(limit->queue->name);
	return true;
}

void
let_keys_go(KeyLimit *limit)
{
	HASH_SEQ_STATUS scan;
	Places *places;

	if (limit->places == nullptr)
		return;
	hash_seq_init(&scan, limit->places);
	while ((places = static_cast<Places *>(hash_seq_search(&scan))) != nullptr)
		unlock_key_of_limit(limit, places);
	hash_destroy(limit->places);
	limit->places = nullptr;
	let_go_of_keys(limit->slot);
}

void
end_key_limit(KeyLimit *limit)
{
	let_keys_go(limit);
	if (limit->leases != nullptr)
		end_probe(limit->leases);
	limit->leases = nullptr;
}

} // namespace outbox
