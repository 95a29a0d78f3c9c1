// See sequence.h. Taking numbers inserts a row (key, upto) and deletes the row before it. If the
// row were updated, a held snapshot would let old versions pile up in front of the live one. Here
// they lie behind it, because a key is read from its greatest number down.

#include "message/sequence.h"

#include <algorithm>

#include "server/args.h"
#include "rows/key_lock.h"
#include "server/digest.h"

namespace outbox {

namespace {

// Few enough for the shared lock table, many enough for one insertion to serve them.
constexpr int keys_at_a_time = 16;

struct KeyUse {
	Digest digest;
	int position;
};

// One key of the batch, with as many numbers as items have it.
struct Key {
	KeyLock held;
	Numbered *first; // of its items
	const Numbered *last;
	const KeyUse *uses;
	int count;
	int64 before; // the last number taken, 0 = none
	ItemPointerData superseded;
};

struct Numbering {
	Wait wait; // for other transactions; never: 55P03
	const text *queue;
	Numbered *items;
	Table *table;
	Probe probe;
	TupleTableSlot *rows[keys_at_a_time];
};

// Locks the key and reads its last number. False, and not locked, if that is another transaction's to decide;
// with wait, only when it has ended.
bool
read_last(Numbering *numbering, Key *key, bool wait)
{
	const Digest &digest = key->uses->digest;
	ScanKeyData scan_key;
	bool taken;
	bool isnull;

	key_equals(&scan_key, primary_index(numbering->table), 1, F_BYTEAEQ, digest_datum(digest));
	if (wait)
		taken = look_up_latched(&numbering->probe, &scan_key, 1, BackwardScanDirection, &key->held, digest.bytes,
								sizeof(digest.bytes), numbering->wait);
	else
	{
		KeyLook found = lock_and_look(&numbering->probe, &scan_key, 1, BackwardScanDirection, &key->held, digest.bytes,
									  sizeof(digest.bytes), numbering->wait);

		if (found == KeyLook::busy)
		{
			rest_probe(&numbering->probe);
			return false;
		}
		taken = found == KeyLook::taken;
	}
	key->before = 0;
	if (taken)
	{
		key->before = DatumGetInt64(numbering->table->get(numbering->probe.slot, key_numbers_col::upto, &isnull));
		key->superseded = numbering->probe.slot->tts_tid;
		key->first->before = to_uuid(numbering->table->get(numbering->probe.slot, key_numbers_col::outbox_id, &isnull));
		key->first->has_before = true;
	}
	return true;
}

void
fill_number(Numbering *numbering, TupleTableSlot *row, const Key *key)
{
	using namespace key_numbers_col;
	const Table *table = numbering->table;
	int64 after;

	if (pg_add_s64_overflow(key->before, key->count, &after))
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("partition_key \"%s\" has no number after " INT64_FORMAT,
							   shown(key->last->partition_key), key->before)));
	set(table, row, key_numbers_col::digest, digest_datum(key->uses->digest));
	set(table, row, upto, Int64GetDatum(after));
	set_text(table, row, key_numbers_col::queue, numbering->queue);
	set_text(table, row, partition_key, key->last->partition_key);
	set(table, row, outbox_id,
		from_uuid(key->last->is_message || !key->first->has_before ? key->last->id : key->first->before));
}

// Takes the numbers of keys that are locked, and unlocks them.
void
take_some(Numbering *numbering, Key *keys, int count)
{
	Table *table = numbering->table;

	for (int i = 0; i < count; i++)
	{
		if (numbering->rows[i] == nullptr)
			numbering->rows[i] = new_row(table);
		fill_number(numbering, numbering->rows[i], &keys[i]);
	}
	insert_rows(table, numbering->rows, count);
	for (int i = 0; i < count; i++)
	{
		Key *key = &keys[i];

		if (key->before > 0 && delete_row(table, &key->superseded, Wait::never) != Changed::done)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("the number of partition_key \"%s\" is held by another transaction",
								   shown(key->last->partition_key)),
							errhint("Only the outbox should lock or change rows of outbox.key_numbers.")));
		unlock_key(&key->held);
		for (int n = 0; n < key->count; n++)
		{
			Numbered *item = &numbering->items[key->uses[n].position];

			item->sequence_id = ++key->before;
			item->digest = key->uses[n].digest;
			item->first = n == 0;
		}
	}
}

// The keys in the order of their digests, several at a time. No lock is held while waiting for a transaction.
void
take_each(Numbering *numbering, Key *keys, int count)
{
	for (int done = 0, n; done < count; done += n)
	{
		CHECK_FOR_INTERRUPTS();
		for (n = 0; n < keys_at_a_time && done + n < count; n++)
			if (!read_last(numbering, &keys[done + n], false))
				break;
		if (n == 0)
			n = read_last(numbering, &keys[done], true);
		take_some(numbering, keys + done, n);
	}
}

// One for each distinct digest. How many they are.
int
group(Numbered *items, const KeyUse *uses, int count, Key *keys)
{
	int n = 0;

	for (int first = 0, next; first < count; first = next)
	{
		for (next = first + 1; next < count && compare(uses[next].digest, uses[first].digest) == 0;)
			next++;
		keys[n++] = {{}, &items[uses[first].position], &items[uses[next - 1].position], &uses[first], next - first, 0,
					 {}};
	}
	return n;
}

} // namespace

void
take_numbers(Call *call, const text *queue, Numbered *items, int count)
{
	Numbering numbering = {call->wait, queue, items, open(call, key_numbers_shape, inserts | deletes), {}, {}};
	KeyUse *uses = static_cast<KeyUse *>(palloc(sizeof(KeyUse) * static_cast<Size>(count)));
	Key *keys = static_cast<Key *>(palloc(sizeof(Key) * static_cast<Size>(count)));

	for (int i = 0; i < count; i++)
	{
		core::Part parts[] = {part_of(queue), part_of(items[i].partition_key)};

		CHECK_FOR_INTERRUPTS();
		uses[i] = {digest_of(core::KeyKind::partition, parts, 2), i};
	}
	std::sort(uses, uses + count, [](const KeyUse &a, const KeyUse &b) {
		int order = compare(a.digest, b.digest);

		return order != 0 ? order < 0 : a.position < b.position;
	});
	begin_probe(&numbering.probe, numbering.table, primary_index(numbering.table), 1);
	take_each(&numbering, keys, group(items, uses, count, keys));
	end_probe(&numbering.probe);
	for (TupleTableSlot *row : numbering.rows)
		if (row != nullptr)
			ExecDropSingleTupleTableSlot(row);
	pfree(keys);
	pfree(uses);
}

} // namespace outbox
