// See sequence.h. Taking numbers inserts a row (key, upto) and deletes the row before it.
// A counter that is updated in place would do, too, but under a held snapshot its
// versions pile up in front of the live one; here they lie behind it, and a key is read
// from its greatest number down.

#include "message/sequence.h"

#include <algorithm>

#include "server/args.h"
#include "rows/key_lock.h"
#include "server/digest.h"

namespace outbox {

namespace {

struct KeyUse {
	Digest digest;
	int position;
};

// Takes `count` numbers of one key; returns the last number before them.
int64
advance_number(Table *table, Probe *probe, TupleTableSlot *row, const text *queue, const Digest &digest,
			   const Numbered *last, int count)
{
	using namespace key_numbers_col;
	KeyLock held;
	ScanKeyData key;
	ItemPointerData superseded;
	int64 before = 0;
	int64 after;
	bool isnull;

	key_equals(&key, primary_index(table), 1, F_BYTEAEQ, digest_datum(digest));
	if (look_up_latched(probe, &key, 1, BackwardScanDirection, &held, digest.bytes, sizeof(digest.bytes)))
	{
		before = DatumGetInt64(table->get(probe->slot, upto, &isnull));
		superseded = probe->slot->tts_tid;
	}
	if (pg_add_s64_overflow(before, count, &after))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("partition_key \"%s\" has no number after " INT64_FORMAT, shown(last->partition_key), before)));
	set(table, row, key_numbers_col::digest, key.sk_argument);
	set(table, row, upto, Int64GetDatum(after));
	set_text(table, row, key_numbers_col::queue, queue);
	set_text(table, row, partition_key, last->partition_key);
	set(table, row, outbox_id, from_uuid(last->id));
	insert_rows(table, &row, 1);
	if (before > 0 && delete_row(table, &superseded, Wait::never) != Changed::done)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("the number of partition_key \"%s\" is held by another transaction",
							   shown(last->partition_key)),
						errhint("Only the outbox should lock or change rows of outbox.key_numbers.")));
	unlock_key(&held);
	return before;
}

} // namespace

void
take_numbers(Call *call, const text *queue, Numbered *items, int count)
{
	Table *table = open(call, key_numbers_shape, inserts | deletes);
	KeyUse *uses = static_cast<KeyUse *>(palloc(sizeof(KeyUse) * static_cast<Size>(count)));
	TupleTableSlot *row = new_row(table);
	Probe probe;

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
	begin_probe(&probe, table, primary_index(table), 1);
	for (int first = 0, next; first < count; first = next)
	{
		int64 number;

		for (next = first + 1; next < count && compare(uses[next].digest, uses[first].digest) == 0;)
			next++;
		number = advance_number(table, &probe, row, queue, uses[first].digest, &items[uses[next - 1].position],
								next - first);
		for (int i = first; i < next; i++)
			items[uses[i].position].sequence_id = ++number;
	}
	end_probe(&probe);
	ExecDropSingleTupleTableSlot(row);
	close_table(table);
	pfree(uses);
}

} // namespace outbox
