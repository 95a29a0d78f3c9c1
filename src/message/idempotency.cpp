// See idempotency.h.
//
// An item may have two keys, and is a duplicate if either is known; then neither of its
// keys is remembered again. So all keys of such items are looked up, in the order of
// their digests, before any is inserted. Keys of items that have only one are looked up
// when they are inserted, under the same lock. If a key of an item with two is taken
// between the two steps, the inserted rows are withdrawn and all keys are looked up again.
//
// Free keys are inserted several at a time, under the locks of all of them. These are taken
// in the order of the digests, and none is held while waiting for a transaction.

#include "message/idempotency.h"

#include <algorithm>

#include "rows/key_lock.h"
#include "server/digest.h"
#include "server/settings.h"

namespace outbox {

namespace {

// Few enough for the shared lock table, many enough for one insertion to serve them.
constexpr int keys_at_a_time = 16;

enum class Standing { unknown, free, known };

// One distinct digest of the batch.
struct Key {
	Digest digest;
	bool look_first; // some item has it beside another key
	Standing standing;
	core::Uuid known_id;
	bool lapsed; // its row is older than the idempotency window
	ItemPointerData lapsed_tid;
	int owner; // the item that remembers it, -1 = none
	bool inserted;
	ItemPointerData tid;
};

struct Use {
	Digest digest;
	int item;
	int which; // 0 idempotency key, 1 event_id
	bool has_both;
};

struct Batch {
	const text *queue;
	Keyed *items;
	int count;
	int64 horizon_ms; // keys of messages before it are forgotten
	Key *keys;        // distinct, by digest
	int nkeys;
	Key **of_item[2]; // the item's keys, or nullptr
	Table *table;
	Probe probe;
	TupleTableSlot *rows[keys_at_a_time];
};

Digest
key_digest(const Batch *batch, const Keyed *item, int which)
{
	core::Part parts[3] = {part_of(batch->queue)};

	if (which == 1)
	{
		parts[1] = {reinterpret_cast<const char *>(item->event_id.bytes), sizeof(item->event_id.bytes)};
		return digest_of(core::KeyKind::event, parts, 2);
	}
	parts[1] = part_of(item->aggregate_id);
	parts[2] = part_of(item->idempotency_key);
	return digest_of(core::KeyKind::idempotency, parts, 3);
}

int64
horizon_ms(const Call *call)
{
	int64 window = idempotency_window_ms();

	return window == PG_INT64_MAX ? PG_INT64_MIN : unix_ms(call->now) - window;
}

// Collects the distinct keys in the order of their digests.
void
collect_keys(Batch *batch)
{
	Size most = static_cast<Size>(batch->count) * 2;
	Use *uses = static_cast<Use *>(palloc(sizeof(Use) * most));
	int n = 0;

	for (int i = 0; i < batch->count; i++)
	{
		const Keyed *item = &batch->items[i];
		bool both = item->idempotency_key != nullptr && item->has_event_id;

		CHECK_FOR_INTERRUPTS();
		if (item->idempotency_key != nullptr)
			uses[n++] = {key_digest(batch, item, 0), i, 0, both};
		if (item->has_event_id)
			uses[n++] = {key_digest(batch, item, 1), i, 1, both};
	}
	std::sort(uses, uses + n, [](const Use &a, const Use &b) { return compare(a.digest, b.digest) < 0; });
	batch->keys = static_cast<Key *>(palloc0(sizeof(Key) * Max(n, 1)));
	for (int which = 0; which < 2; which++)
		batch->of_item[which] = static_cast<Key **>(palloc0(sizeof(Key *) * static_cast<Size>(batch->count)));
	for (int i = 0; i < n; i++)
	{
		Key *key;

		if (i == 0 || compare(uses[i].digest, uses[i - 1].digest) != 0)
			batch->keys[batch->nkeys++].digest = uses[i].digest;
		key = &batch->keys[batch->nkeys - 1];
		key->look_first |= uses[i].has_both;
		batch->of_item[uses[i].which][uses[i].item] = key;
	}
	pfree(uses);
}

// The probe stands on the row of the key. True if it is known.
bool
read_key(Batch *batch, Key *key)
{
	bool isnull;

	key->known_id = to_uuid(batch->table->get(batch->probe.slot, idempotency_keys_col::outbox_id, &isnull));
	key->lapsed = core::id_time_ms(key->known_id) < batch->horizon_ms;
	if (key->lapsed)
	{
		key->lapsed_tid = batch->probe.slot->tts_tid;
		return false;
	}
	key->standing = Standing::known;
	return true;
}

// Looks a key up and leaves it locked. True if it is known.
bool
look_up_key(Batch *batch, Key *key, KeyLock *held)
{
	ScanKeyData scan_key;

	key_equals(&scan_key, primary_index(batch->table), 1, F_BYTEAEQ, digest_datum(key->digest));
	key->lapsed = false;
	return look_up_latched(&batch->probe, &scan_key, 1, ForwardScanDirection, held, key->digest.bytes,
						   sizeof(key->digest.bytes)) &&
		   read_key(batch, key);
}

void
look_up_keys_of_pairs(Batch *batch)
{
	for (int i = 0; i < batch->nkeys; i++)
	{
		Key *key = &batch->keys[i];
		KeyLock held;

		if (!key->look_first)
			continue;
		key->standing = look_up_key(batch, key, &held) ? Standing::known : Standing::free;
		unlock_key(&held);
	}
}

// What decides about an item, as enqueue would one by one: the idempotency key before the
// event_id, each by what is known and by what stands earlier in the batch. nullptr: new.
const Key *
judge(Batch *batch, int i)
{
	Keyed *item = &batch->items[i];

	item->known = false;
	item->duplicate_of = -1;
	for (int which = 0; which < 2; which++)
	{
		const Key *key = batch->of_item[which][i];

		if (key == nullptr)
			continue;
		item->known = key->standing == Standing::known;
		if (!item->known && key->owner >= 0 && key->owner < i)
			item->duplicate_of = key->owner;
		if (item->known || item->duplicate_of >= 0)
			return key;
	}
	return nullptr;
}

// In the order of the items: who owns which key.
void
resolve(Batch *batch)
{
	for (int i = 0; i < batch->nkeys; i++)
		batch->keys[i].owner = -1;
	for (int i = 0; i < batch->count; i++)
	{
		if (judge(batch, i) != nullptr)
			continue;
		for (int which = 0; which < 2; which++)
			if (batch->of_item[which][i] != nullptr)
				batch->of_item[which][i]->owner = i;
	}
}

void
write_keys(Batch *batch, Key *const *keys, int count)
{
	using namespace idempotency_keys_col;

	for (int i = 0; i < count; i++)
	{
		TupleTableSlot **row = &batch->rows[i];

		if (*row == nullptr)
			*row = new_row(batch->table);
		set(batch->table, *row, digest, digest_datum(keys[i]->digest));
		set_text(batch->table, *row, idempotency_keys_col::queue, batch->queue);
		set(batch->table, *row, outbox_id, from_uuid(batch->items[keys[i]->owner].id));
	}
	insert_rows(batch->table, batch->rows, count);
	for (int i = 0; i < count; i++)
	{
		keys[i]->tid = batch->rows[i]->tts_tid;
		keys[i]->inserted = true;
	}
}

// False when its lapsed row is changing, or has changed, in other hands: maintenance deletes
// such rows too.
bool
insert_key(Batch *batch, Key *key)
{
	if (key->lapsed && delete_row(batch->table, &key->lapsed_tid, Wait::never) != Changed::done)
		return false;
	write_keys(batch, &key, 1);
	return true;
}

// False when it has been taken meanwhile.
bool
insert_owned_key(Batch *batch, Key *key)
{
	for (;;)
	{
		KeyLock held;
		bool known = look_up_key(batch, key, &held);
		bool inserted = !known && insert_key(batch, key);

		unlock_key(&held);
		if (known || inserted)
			return inserted;
		rest_probe(&batch->probe);
		hold_row(batch->table, &key->lapsed_tid, Wait::for_row);
	}
}

// Locks a key of which there is no row at all. False, and not locked, when there is one.
bool
lock_if_free(Batch *batch, const Key *key, KeyLock *held)
{
	ScanKeyData scan_key;
	KeyLook look;

	key_equals(&scan_key, primary_index(batch->table), 1, F_BYTEAEQ, digest_datum(key->digest));
	look = lock_and_look(&batch->probe, &scan_key, 1, ForwardScanDirection, held, key->digest.bytes,
						 sizeof(key->digest.bytes));
	if (look == KeyLook::free)
		return true;
	rest_probe(&batch->probe);
	if (look == KeyLook::taken)
		unlock_key(held);
	return false;
}

// The first of the keys, as many as are free. How many these were.
int
insert_free_keys(Batch *batch, Key *const *keys, int count)
{
	KeyLock held[keys_at_a_time];
	int n = 0;

	CHECK_FOR_INTERRUPTS();
	while (n < count && lock_if_free(batch, keys[n], &held[n]))
		n++;
	if (n > 0)
		write_keys(batch, keys, n);
	for (int i = 0; i < n; i++)
		unlock_key(&held[i]);
	return n;
}

// False when a key that was looked at first, and was free, has been taken meanwhile.
bool
insert_owned_keys(Batch *batch)
{
	Key **owned = static_cast<Key **>(palloc(sizeof(Key *) * static_cast<Size>(batch->nkeys)));
	bool kept = true;
	bool new_ones = true; // a repeated batch is not looked up twice
	int count = 0;

	for (int i = 0; i < batch->nkeys; i++)
		if (batch->keys[i].owner >= 0)
			owned[count++] = &batch->keys[i];
	for (int done = 0; kept && done < count;)
	{
		int most = Min(count - done, keys_at_a_time);
		int n = new_ones ? insert_free_keys(batch, owned + done, most) : 0;

		done += n;
		if (n == most)
			continue;
		new_ones = insert_owned_key(batch, owned[done]);
		kept = new_ones || !owned[done]->look_first;
		done++;
	}
	pfree(owned);
	return kept;
}

void
withdraw(Batch *batch)
{
	CommandCounterIncrement();
	for (int i = 0; i < batch->nkeys; i++)
	{
		Key *key = &batch->keys[i];

		CHECK_FOR_INTERRUPTS();
		if (key->inserted && delete_row(batch->table, &key->tid, Wait::never) != Changed::done)
			elog(ERROR, "could not withdraw a key");
		key->inserted = false;
		key->standing = Standing::unknown;
	}
	CommandCounterIncrement();
}

// Only now, because an item that is looked at again may turn out to be new after all.
void
give_ids(Batch *batch)
{
	for (int i = 0; i < batch->count; i++)
	{
		Keyed *item = &batch->items[i];
		const Key *key = judge(batch, i);

		if (item->known)
			item->id = key->known_id;
		else if (item->duplicate_of >= 0)
			item->id = batch->items[item->duplicate_of].id;
	}
}

Batch
make_batch(const Call *call, const text *queue, Keyed *items, int count)
{
	Batch batch = {};

	batch.queue = queue;
	batch.items = items;
	batch.count = count;
	batch.horizon_ms = horizon_ms(call);
	collect_keys(&batch);
	return batch;
}

void
begin_batch(Call *call, Batch *batch)
{
	batch->table = open(call, idempotency_keys_shape, inserts | deletes);
	begin_probe(&batch->probe, batch->table, primary_index(batch->table), 1);
}

void
end_batch(Batch *batch)
{
	end_probe(&batch->probe);
	for (TupleTableSlot *row : batch->rows)
		if (row != nullptr)
			ExecDropSingleTupleTableSlot(row);
}

// True if it is known.
bool
insert_unless_known(Batch *batch, Key *key)
{
	ScanKeyData scan_key;
	KeyLock held;
	KeyLook look;
	bool known;

	key_equals(&scan_key, primary_index(batch->table), 1, F_BYTEAEQ, digest_datum(key->digest));
	look = lock_and_look(&batch->probe, &scan_key, 1, ForwardScanDirection, &held, key->digest.bytes,
						 sizeof(key->digest.bytes));
	if (look == KeyLook::busy)
		return false;
	known = look == KeyLook::taken && read_key(batch, key);
	if (!known)
		insert_key(batch, key);
	unlock_key(&held);
	return known;
}

} // namespace

void
remember_keys(Call *call, const text *queue, Keyed *items, int count)
{
	Batch batch = make_batch(call, queue, items, count);

	if (batch.nkeys > 0)
	{
		begin_batch(call, &batch);
		for (;;)
		{
			look_up_keys_of_pairs(&batch);
			resolve(&batch);
			if (insert_owned_keys(&batch))
				break;
			withdraw(&batch);
		}
		end_batch(&batch);
	}
	else
		resolve(&batch);
	give_ids(&batch);
}

bool
remember_at_once(Call *call, const text *queue, Keyed *item)
{
	Batch batch = make_batch(call, queue, item, 1);
	bool known;

	begin_batch(call, &batch);
	resolve(&batch);
	known = insert_unless_known(&batch, &batch.keys[0]);
	end_batch(&batch);
	return !known;
}

} // namespace outbox
