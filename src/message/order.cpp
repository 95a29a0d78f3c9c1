// See order.h.

#include "message/order.h"

#include "commit/shared.h"
#include "commit/transaction.h"
#include "message/audit_notes.h"
#include "message/key_marks.h"
#include "rows/batch.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

using core::Uuid;

// ---- the row of a message

enum class Seen { live, going, gone };

// Of a version that an open transaction made: whether that has replaced or ended it. A dirty snapshot does not say.
bool
is_outdated(TupleTableSlot *slot)
{
	const HeapTupleHeaderData *header = ExecFetchSlotHeapTuple(slot, false, nullptr)->t_data;

	return (header->t_infomask & HEAP_XMAX_INVALID) == 0 && !HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask);
}

// going: an open transaction ends it, or may.
Seen
look_at_message(Call *call, const Uuid &id)
{
	Table *table = pending(call);
	Probe *probe = probe_id(table, id);
	Seen seen = Seen::gone;
	ScanKeyData key;

	while (seen != Seen::live && next_row(probe))
	{
		bool going = TransactionIdIsValid(probe->changer()) ||
					 (TransactionIdIsValid(probe->inserter()) && is_outdated(probe->slot));

		seen = going ? Seen::going : Seen::live;
	}
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
	OUTBOX_STOP_POINT("enqueue_after_first_look");
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
	// Of a row that was passed over both versions may have been missed, if it was changed meanwhile. In front of the
	// very next number there is none.
	if (found.row == nullptr ? probe.entries > 0 : probe.entries > 1 && found.row->sequence_id > from)
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

bool
is_leased(const Successor &next)
{
	return next.row != nullptr ? next.row->leased : next.open;
}

// The messages that are leased behind the place, in the order of the key.
Changed
find_run(Call *call, KeyPlace place, Wait wait, List **run)
{
	for (;;)
	{
		Successor next = successor(call, place);

		CHECK_FOR_INTERRUPTS();
		if (!is_leased(next))
			return Changed::done;
		if (next.open)
			return wait_for_holder(next.holder, wait);
		*run = lappend(*run, next.row);
		place.sequence_id = next.row->sequence_id;
	}
}

Changed
give_back_one(Call *call, PendingRow *row, Wait wait)
{
	const text *holder = row->claimed_by;
	Changed changed;

	clear_lease(row);
	changed = store(call, row, wait);
	if (changed == Changed::done)
		note_audited(call, {Audited::released, row->queue, holder, row->id, row->attempt_count + 1});
	return changed;
}

} // namespace

// The last of the run first: where another transaction holds one of them after all, those before it are still leased,
// and the next look finds the rest of the run behind them.
Changed
release_run(Call *call, PendingRow *row, Wait wait)
{
	KeyPlace place = {row->queue, row->partition_key, row->sequence_id};
	List *run = NIL;
	Successor next;
	Changed changed;

	if (!has_turn(call, row))
		return Changed::done;
	next = successor(call, place);
	if (!is_leased(next))
		return Changed::done;
	if (next.open)
		return wait_for_holder(next.holder, wait);
	// What is behind a row that was changed since may be another claim's.
	changed = hold(call, row, wait);
	if (changed == Changed::done)
		changed = find_run(call, place, wait, &run);
	for (int i = list_length(run) - 1; i >= 0 && changed == Changed::done; i--)
		changed = give_back_one(call, static_cast<PendingRow *>(list_nth(run, i)), wait);
	return changed;
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

// Which of the messages that they name have ended.
void
judge_messages(Call *call, List *marks, KeyState *state)
{
	ListCell *cell;

	foreach (cell, marks)
	{
		const Mark *mark = static_cast<const Mark *>(lfirst(cell));
		Seen seen = is(mark, drained) && mark->has_id ? look_at_message(call, mark->id) : Seen::gone;

		state->open = state->open || seen == Seen::going;
		if (is(mark, drained) && seen == Seen::gone)
			state->upto = Max(state->upto, mark->sequence_id);
	}
}

// To be read after the messages: one that is gone has left its gap or its block.
void
judge_kinds(List *marks, KeyState *state)
{
	ListCell *cell;

	foreach (cell, marks)
	{
		const Mark *mark = static_cast<const Mark *>(lfirst(cell));

		state->open = state->open || mark->open;
		state->is_blocked = state->is_blocked || is(mark, blocked);
		state->has_gap = state->has_gap || is(mark, gap);
	}
}

// True: to be settled later.
bool
settle_key(Call *call, const text *queue, const Digest &digest)
{
	KeyState state = {};
	List *marks = marks_of_key(call, queue, digest, &state.open);
	Successor next;

	OUTBOX_STOP_POINT("settle_marks_read");
	judge_messages(call, marks, &state);
	judge_kinds(marks_of_key(call, queue, digest, &state.open), &state);
	if (state.open)
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

// True: not all could be settled.
bool
settle_each(Call *call, const text *queue, const List *marks)
{
	bool left = false;
	const Digest *last = nullptr;
	ListCell *cell;

	foreach (cell, marks)
	{
		const Mark *mark = static_cast<const Mark *>(lfirst(cell));

		CHECK_FOR_INTERRUPTS();
		if (last == nullptr || compare(*last, mark->digest) != 0)
			left = settle_key(call, queue, mark->digest) || left;
		last = &mark->digest;
	}
	return left;
}

} // namespace

bool
settle_marks(Call *call, const Queue *queue, bool all)
{
	bool open = false;

	return queue->fifo && (settle_each(call, queue->name, marks_of_queue(call, queue->name, all, &open)) || open);
}

void
settle_some_marks(Call *call, const Queue *queue)
{
	QueueSlot *slot = queue->fifo ? queue_ref(text_to_cstring(queue->name)).slot : nullptr;

	if (!queue->fifo || (slot != nullptr && pg_atomic_read_u32(&slot->marked) == 0))
		return;
	settle_each(call, queue->name, some_drained_marks(call, queue->name));
	// What has become a head can be leased only by the next command.
	CommandCounterIncrement();
}

// ---- operators

namespace {

// The block of a key, as it is now; nullptr: none. With dead: only if that is the message.
Mark *
find_block(Call *call, const Queue *queue, const Digest &digest, const Uuid *dead)
{
	bool open = false;
	ListCell *cell;

	foreach (cell, marks_of_key(call, queue->name, digest, &open))
	{
		Mark *mark = static_cast<Mark *>(lfirst(cell));

		if (is(mark, blocked) && (dead == nullptr || (mark->has_id && equal(mark->id, *dead))))
			return mark;
	}
	return nullptr;
}

// Waits for another operator, and looks again: the key may have gone on to the next block.
Mark *
take_block(Call *call, const Queue *queue, const Digest &digest, const Uuid *dead)
{
	Mark *mark;

	while ((mark = find_block(call, queue, digest, dead)) != nullptr)
	{
		Table *table = open(call, key_marks_shape, deletes);
		Changed changed = delete_row(table, &mark->tid, call->wait);

		if (changed == Changed::done)
			break;
		if (changed == Changed::busy)
			raise_busy(table);
		CHECK_FOR_INTERRUPTS();
	}
	return mark;
}

} // namespace

bool
unblock_key(Call *call, const Queue *queue, const text *partition_key, core::Uuid *blocked_by)
{
	Digest digest = digest_of_key(queue->name, partition_key);
	Mark *mark = take_block(call, queue, digest, nullptr);

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
	Mark *mark = queue->fifo ? take_block(call, queue, digest, &dead) : nullptr;

	if (mark == nullptr)
		return false;
	// If the dead head was the last message of its key, a producer finds it gone while the new message is pending.
	leave_mark(call, queue, partition_key, gap, mark->sequence_id, dead);
	return true;
}

} // namespace outbox
