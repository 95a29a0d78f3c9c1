// See order.h.

#include "message/order.h"

#include "commit/shared.h"
#include "rows/batch.h"
#include "commit/transaction.h"
#include "server/random.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

using core::Uuid;

constexpr int marks_at_a_time = 100;

constexpr char drained[] = "drained";
constexpr char gap[] = "gap";
constexpr char blocked[] = "blocked";

struct Mark {
	ItemPointerData tid;
	Digest digest;
	const char *kind;
	text *partition_key;
	int64 sequence_id;
	bool has_id;
	Uuid id;
	bool open; // another transaction is removing it
};

Digest
digest_of_key(const text *queue, const text *partition_key)
{
	core::Part parts[] = {part_of(queue), part_of(partition_key)};

	return digest_of(core::KeyKind::partition, parts, 2);
}

bool
is(const Mark *mark, const char *kind)
{
	return strcmp(mark->kind, kind) == 0;
}

// ---- marks

void
leave_mark(Call *call, const Queue *queue, const text *partition_key, const char *kind, int64 sequence_id,
		   const Uuid &id)
{
	using namespace key_marks_col;
	Table *table = open(call, key_marks_shape, inserts);
	TupleTableSlot *row = new_row(table);

	set(table, row, mark_id, from_uuid(random_token()));
	set(table, row, digest, digest_datum(digest_of_key(queue->name, partition_key)));
	set_text(table, row, key_marks_col::queue, queue->name);
	set_text(table, row, key_marks_col::partition_key, partition_key);
	set(table, row, key_marks_col::kind, CStringGetTextDatum(kind));
	set(table, row, key_marks_col::sequence_id, Int64GetDatum(sequence_id));
	set(table, row, outbox_id, from_uuid(id));
	set(table, row, created_at, TimestampTzGetDatum(call->now));
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
	note_turn(queue->name, strcmp(kind, blocked) != 0);
}

Mark *
read_mark(const Table *table, Probe *probe)
{
	using namespace key_marks_col;
	Mark *mark = static_cast<Mark *>(palloc0(sizeof(Mark)));
	bool isnull;
	auto value = [&](int column) { return table->get(probe->slot, column, &isnull); };
	Datum id;

	mark->tid = probe->slot->tts_tid;
	memcpy(mark->digest.bytes, VARDATA_ANY(DatumGetByteaPP(value(digest))), sizeof(mark->digest.bytes));
	mark->kind = TextDatumGetCString(value(kind));
	mark->partition_key = DatumGetTextPCopy(value(partition_key));
	mark->sequence_id = DatumGetInt64(value(sequence_id));
	id = value(outbox_id);
	mark->has_id = !isnull;
	if (mark->has_id)
		mark->id = to_uuid(id);
	mark->open = TransactionIdIsValid(probe->changer());
	return mark;
}

// Of one key, or of all of the queue that are not blocks; in the order of keys. open: there are more, of open
// transactions.
List *
read_marks(Call *call, const text *queue, const Digest *key, int most, bool *open)
{
	Table *table = outbox::open(call, key_marks_shape, reads);
	Relation index = own_index(table, key != nullptr ? key_marks_index::key : key_marks_index::open);
	int nkeys = key != nullptr ? 2 : 1;
	List *marks = NIL;
	ScanKeyData keys[2];
	Probe probe;

	key_equals(&keys[0], index, 1, F_TEXTEQ, PointerGetDatum(queue));
	if (key != nullptr)
		key_equals(&keys[1], index, 2, F_BYTEAEQ, digest_datum(*key));
	begin_probe(&probe, table, index, nkeys);
	start_probe(&probe, keys, nkeys);
	while (list_length(marks) < most && next_row(&probe))
	{
		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsValid(probe.inserter()))
			*open = true;
		else
			marks = lappend(marks, read_mark(table, &probe));
	}
	end_probe(&probe);
	return marks;
}

List *
marks_of_key(Call *call, const text *queue, const Digest &key, bool *open)
{
	return read_marks(call, queue, &key, PG_INT32_MAX, open);
}

// ---- the row of a message

enum class Seen { live, going, gone };

// going: an open transaction ends it, or may.
Seen
look_at_message(Call *call, const Uuid &id)
{
	Table *table = pending(call);
	Probe *probe = probe_id(table, id);
	Seen seen = Seen::gone;
	ScanKeyData key;

	while (seen != Seen::live && next_row(probe))
		seen = TransactionIdIsValid(probe->changer()) ? Seen::going : Seen::live;
	if (seen == Seen::gone)
	{
		key_equals(&key, primary_index(table), 1, F_UUID_EQ, from_uuid(id));
		if (find_in_latest_snapshot(table, primary_index(table), &key, 1, probe->slot))
			seen = Seen::going;
	}
	rest_probe(probe);
	return seen;
}

// What the message before one says of its turn.
enum class Turn { now, later, unknown };

Turn
turn_behind(Call *call, const Queue *queue, const Numbered *item)
{
	List *marks;
	bool open = false;

	switch (look_at_message(call, item->before))
	{
		case Seen::live:
			return Turn::later;
		case Seen::going:
			return Turn::unknown;
		case Seen::gone:
			break;
	}
	marks = marks_of_key(call, queue->name, item->digest, &open);
	if (marks == NIL && !open)
		return Turn::now;
	if (!open && list_length(marks) == 1)
	{
		const Mark *mark = static_cast<const Mark *>(linitial(marks));

		if (is(mark, blocked) && !mark->open)
			return Turn::later;
	}
	return Turn::unknown;
}

void
leave_drained_before(Call *call, const Queue *queue, const Numbered *item)
{
	leave_mark(call, queue, item->partition_key, drained, item->sequence_id - 1, item->before);
}

} // namespace

bool
waits_for_turn(Call *call, const Queue *queue, Numbered *first)
{
	Turn turn;

	if (!first->has_before)
		return false;
	turn = turn_behind(call, queue, first);
	first->look_again = turn == Turn::later;
	if (turn == Turn::unknown)
		leave_drained_before(call, queue, first);
	return turn != Turn::now;
}

void
look_at_turns_again(Call *call, const Queue *queue, const Numbered *items, int count)
{
	OUTBOX_STOP_POINT("enqueue_before_second_look");
	for (int i = 0; i < count; i++)
		if (items[i].look_again && turn_behind(call, queue, &items[i]) != Turn::later)
			leave_drained_before(call, queue, &items[i]);
	note_turn(queue->name, false);
}

namespace {

// Whether the newest state has a row of these keys in front of that one, if there is one.
bool
is_any_before(Call *call, ScanKey keys, const PendingRow *row)
{
	Table *table = pending(call);
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	bool found = find_in_latest_snapshot(table, own_index(table, pending_index::key_sequence), keys, 2, slot) &&
				 (row == nullptr || load(table, slot)->sequence_id < row->sequence_id);

	ExecDropSingleTupleTableSlot(slot);
	return found;
}

// The first row of the key from that number on.
Successor
first_from(Call *call, const Digest &digest, int64 from)
{
	Table *table = pending(call);
	Relation index = own_index(table, pending_index::key_sequence);
	Successor found = {};
	ScanKeyData keys[2];
	Probe probe;

	key_equals(&keys[0], index, 1, F_BYTEAEQ, digest_datum(digest));
	key_compares(&keys[1], index, 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	begin_probe(&probe, table, index, 2);
	start_probe(&probe, keys, 2);
	if (next_row(&probe))
	{
		found.holder = TransactionIdIsValid(probe.inserter()) ? probe.inserter() : probe.changer();
		found.open = TransactionIdIsValid(found.holder);
		found.row = load(table, probe.slot);
	}
	// Of a row that was passed over both versions may have been missed, if it was changed meanwhile.
	if (probe.entries > (found.row != nullptr))
		found.open = is_any_before(call, keys, found.row) || found.open;
	end_probe(&probe);
	return found;
}

Digest
digest_of_row(const PendingRow *row)
{
	return digest_of_key(row->queue, row->partition_key);
}

// Where parts of the table that users made refuse the row, the end of the message before it succeeds all the same.
bool
promote(Call *call, PendingRow *row)
{
	bool done = false;

	row->held_back = false;
	each_item(
		call, 1, has_foreign_parts(pending(call)),
		[&](Call *inner, int, int) { done = store(inner, row, Wait::never) == Changed::done; },
		[&](int, ErrorData *error) {
			done = false;
			ereport(WARNING, (errcode(error->sqlerrcode),
							  errmsg("message %s stays held back: %s", shown(row->id), error->message)));
		});
	return done;
}

// The queue, if it is ordered and the row has a key.
const Queue *
ordered_queue(Call *call, const PendingRow *row)
{
	const Queue *queue = row->sequence_id > 0 && row->partition_key != nullptr ? find_queue(call, row->queue) : nullptr;

	return queue != nullptr && queue->fifo ? queue : nullptr;
}

// All numbers of the key up to that have ended.
void
go_on(Call *call, const Queue *queue, const text *partition_key, const Digest &digest, int64 upto, const Uuid &id)
{
	Successor next;

	OUTBOX_STOP_POINT("end_before_look_behind");
	next = first_from(call, digest, upto + 1);
	if (next.open || (next.row != nullptr && next.row->held_back && !promote(call, next.row)))
		leave_mark(call, queue, partition_key, drained, upto, id);
	else
		note_turn(queue->name, false);
}

} // namespace

bool
has_turn(Call *call, const PendingRow *row)
{
	return ordered_queue(call, row) != nullptr;
}

bool
blocks_key(Call *call, const PendingRow *row, bool died)
{
	const Queue *queue = died ? ordered_queue(call, row) : nullptr;

	return queue != nullptr && queue->blocks;
}

Successor
successor(Call *call, const KeyPlace &place)
{
	return first_from(call, digest_of_key(place.queue, place.partition_key), place.sequence_id + 1);
}

void
pass_turn(Call *call, const PendingRow *row, bool died)
{
	const Queue *queue = ordered_queue(call, row);

	if (queue == nullptr)
		return;
	if (row->held_back)
		leave_mark(call, queue, row->partition_key, gap, row->sequence_id, row->id);
	else if (died && queue->blocks)
		leave_mark(call, queue, row->partition_key, blocked, row->sequence_id, row->id);
	else
		go_on(call, queue, row->partition_key, digest_of_row(row), row->sequence_id, row->id);
}

namespace {

Changed
wait_for_holder(TransactionId holder, Wait wait)
{
	if (!TransactionIdIsValid(holder))
		return Changed::outdated;
	if (wait == Wait::never)
		return Changed::busy;
	expect_no_pins();
	XactLockTableWait(holder, nullptr, nullptr, XLTW_None);
	return Changed::outdated;
}

} // namespace

Changed
release_run(Call *call, const PendingRow *row, Wait wait)
{
	KeyPlace place = {row->queue, row->partition_key, row->sequence_id};

	if (!has_turn(call, row))
		return Changed::done;
	for (;;)
	{
		Successor next = successor(call, place);
		Changed changed;

		CHECK_FOR_INTERRUPTS();
		if (next.row == nullptr ? !next.open : !next.row->leased)
			return Changed::done;
		if (next.open)
			return wait_for_holder(next.holder, wait);
		place.sequence_id = next.row->sequence_id;
		clear_lease(next.row);
		changed = store(call, next.row, wait);
		if (changed != Changed::done)
			return changed;
	}
}

// ---- settling

namespace {

// What the marks of a key say together.
struct KeyState {
	bool is_blocked;
	bool has_gap;
	bool open;  // a transaction that matters is open
	int64 upto; // all numbers up to there have ended
};

KeyState
judge_marks(Call *call, List *marks)
{
	KeyState state = {};
	ListCell *cell;

	foreach (cell, marks)
	{
		const Mark *mark = static_cast<const Mark *>(lfirst(cell));
		Seen seen = is(mark, drained) && mark->has_id ? look_at_message(call, mark->id) : Seen::gone;

		state.open = state.open || mark->open || seen == Seen::going;
		state.is_blocked = state.is_blocked || is(mark, blocked);
		state.has_gap = state.has_gap || is(mark, gap);
		if (is(mark, drained) && seen == Seen::gone)
			state.upto = Max(state.upto, mark->sequence_id);
	}
	return state;
}

// Those that say nothing any more. A gap does until the key has come past it.
void
remove_marks(Call *call, const List *marks, bool all_gaps, int64 head)
{
	Table *table = open(call, key_marks_shape, deletes);
	ListCell *cell;

	foreach (cell, marks)
	{
		Mark *mark = static_cast<Mark *>(lfirst(cell));

		if (is(mark, drained) || (is(mark, gap) && (all_gaps || mark->sequence_id < head)))
			delete_row(table, &mark->tid, Wait::never);
	}
}

// True: to be settled later.
bool
settle_key(Call *call, const text *queue, const Digest &digest)
{
	bool open = false;
	List *marks = marks_of_key(call, queue, digest, &open);
	KeyState state = judge_marks(call, marks);
	Successor next;

	if (open || state.open)
		return true;
	if (state.is_blocked)
	{
		remove_marks(call, marks, false, 0);
		return false;
	}
	// Behind a gap the last message of the key does not say what has ended.
	next = first_from(call, digest, state.has_gap ? 0 : state.upto);
	if (next.open || (next.row != nullptr && next.row->held_back && !promote(call, next.row)))
		return true;
	remove_marks(call, marks, next.row == nullptr, next.row != nullptr ? next.row->sequence_id : 0);
	return false;
}

// True: there may be more.
bool
settle_queue(Call *call, const text *queue, int most)
{
	bool more = false;
	List *marks = read_marks(call, queue, nullptr, most, &more);
	const Digest *last = nullptr;
	ListCell *cell;

	more = more || list_length(marks) >= most;
	foreach (cell, marks)
	{
		const Mark *mark = static_cast<const Mark *>(lfirst(cell));

		CHECK_FOR_INTERRUPTS();
		if (last == nullptr || compare(*last, mark->digest) != 0)
			more = settle_key(call, queue, mark->digest) || more;
		last = &mark->digest;
	}
	return more;
}

} // namespace

bool
settle_marks(Call *call, const Queue *queue)
{
	return queue->fifo && settle_queue(call, queue->name, PG_INT32_MAX);
}

void
settle_some_marks(Call *call, const Queue *queue)
{
	QueueSlot *slot = queue->fifo ? queue_ref(text_to_cstring(queue->name)).slot : nullptr;

	if (!queue->fifo || (slot != nullptr && pg_atomic_read_u32(&slot->marked) == 0))
		return;
	settle_queue(call, queue->name, marks_at_a_time);
	// What has become a head can be leased only by the next command.
	CommandCounterIncrement();
}

// ---- operators

namespace {

// The block of a key, as it is now; nullptr: none.
Mark *
find_block(Call *call, const Queue *queue, const Digest &digest)
{
	bool open = false;
	ListCell *cell;

	foreach (cell, marks_of_key(call, queue->name, digest, &open))
		if (is(static_cast<Mark *>(lfirst(cell)), blocked))
			return static_cast<Mark *>(lfirst(cell));
	return nullptr;
}

Mark *
take_block(Call *call, const Queue *queue, const Digest &digest)
{
	for (;;)
	{
		Mark *mark = find_block(call, queue, digest);
		Changed changed;
		Table *table;

		CHECK_FOR_INTERRUPTS();
		if (mark == nullptr)
			return nullptr;
		table = open(call, key_marks_shape, deletes);
		changed = delete_row(table, &mark->tid, Wait::for_row);
		if (changed == Changed::done)
			return mark;
	}
}

} // namespace

bool
unblock_key(Call *call, const Queue *queue, const text *partition_key, core::Uuid *blocked_by)
{
	Digest digest = digest_of_key(queue->name, partition_key);
	Mark *mark = take_block(call, queue, digest);

	if (mark == nullptr)
		return false;
	*blocked_by = mark->id;
	go_on(call, queue, partition_key, digest, mark->sequence_id, mark->id);
	return true;
}

bool
take_place_of(Call *call, const Queue *queue, const text *partition_key, const core::Uuid &dead)
{
	Digest digest = digest_of_key(queue->name, partition_key);
	Mark *mark = queue->fifo ? find_block(call, queue, digest) : nullptr;

	if (mark == nullptr || !mark->has_id || !equal(mark->id, dead) || take_block(call, queue, digest) == nullptr)
		return false;
	// A producer that finds the dead one gone must not take its key for empty.
	leave_mark(call, queue, partition_key, gap, mark->sequence_id, dead);
	return true;
}

void
forget_marks(Call *call, const text *queue)
{
	Table *table = open(call, key_marks_shape, deletes);
	Relation index = own_index(table, key_marks_index::key);
	List *tids = NIL;
	ScanKeyData key;
	ListCell *cell;
	Probe probe;

	key_equals(&key, index, 1, F_TEXTEQ, PointerGetDatum(queue));
	begin_probe(&probe, table, index, 1);
	start_probe(&probe, &key, 1);
	while (next_settled(&probe, ForwardScanDirection))
	{
		ItemPointer tid = static_cast<ItemPointer>(palloc(sizeof(ItemPointerData)));

		*tid = probe.slot->tts_tid;
		tids = lappend(tids, tid);
	}
	end_probe(&probe);
	foreach (cell, tids)
		delete_row(table, static_cast<ItemPointer>(lfirst(cell)), Wait::never);
}

} // namespace outbox
