// See key_marks.h.

#include "message/key_marks.h"

#include "commit/transaction.h"
#include "server/random.h"

namespace outbox {

namespace {

// What a claim settles, and reads for it.
constexpr int marks_at_a_time = 100;
constexpr int entries_at_a_time = 1000;

} // namespace

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

void
leave_mark(Call *call, const Queue *queue, const text *partition_key, const char *kind, int64 sequence_id,
		   const core::Uuid &id)
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

namespace {

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

Table *
begin_marks(Call *call, Probe *probe, const text *queue, const Digest *key, int which)
{
	Table *table = open(call, key_marks_shape, reads);
	Relation index = own_index(table, which);
	int nkeys = key != nullptr ? 2 : 1;
	ScanKeyData keys[2];

	key_equals(&keys[0], index, 1, F_TEXTEQ, PointerGetDatum(queue));
	if (key != nullptr)
		key_equals(&keys[1], index, 2, F_BYTEAEQ, digest_datum(*key));
	begin_probe(probe, table, index, nkeys);
	start_probe(probe, keys, nkeys);
	return table;
}

List *
read_marks(Call *call, const text *queue, const Digest *key, int which, bool *open)
{
	List *marks = NIL;
	Probe probe;
	Table *table = begin_marks(call, &probe, queue, key, which);

	while (next_row(&probe))
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

} // namespace

List *
marks_of_queue(Call *call, const text *queue, bool all, bool *open)
{
	return read_marks(call, queue, nullptr, all ? key_marks_index::key : key_marks_index::drained, open);
}

List *
some_drained_marks(Call *call, const text *queue)
{
	int entries = entries_at_a_time;
	List *marks = NIL;
	Probe probe;
	Table *table = begin_marks(call, &probe, queue, nullptr, key_marks_index::drained);

	while (list_length(marks) < marks_at_a_time && next_settled_within(&probe, &entries) == Walk::row)
		marks = lappend(marks, read_mark(table, &probe));
	end_probe(&probe);
	return marks;
}

List *
marks_of_key(Call *call, const text *queue, const Digest &key, bool *open)
{
	return read_marks(call, queue, &key, key_marks_index::key, open);
}

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
