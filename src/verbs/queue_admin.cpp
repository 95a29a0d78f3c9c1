// create_queue, alter_queue, drop_queue, pause, resume; and the trigger that lets a dump
// restore the settings of queues that exist.
//
// Guarantees: changes act on the newest committed row, in every isolation level. A setting that this version does not
// support is refused, never stored. drop_queue is refused, without waiting, if the queue has pending rows or an open
// transaction has enqueued into it.

#include "server/args.h"
#include "server/boundary.h"
#include "rows/key_lock.h"
#include "message/audit_notes.h"
#include "message/due.h"
#include "message/order.h"
#include "message/key_marks.h"
#include "message/queue.h"
#include "message/rate_table.h"
#include "commit/reservation.h"
#include "commit/transaction.h"
#include "verbs/queue_events.h"
#include "verbs/queue_privacy.h"
#include "verbs/queue_settings.h"

namespace outbox {

namespace {

constexpr int longest_name = NAMEDATALEN - 1;

text *
queue_argument(FunctionCallInfo fcinfo)
{
	text *name = required_nonempty_text(fcinfo, 0, "queue");

	if (VARSIZE_ANY_EXHDR(name) > longest_name)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("queue must not be longer than %d bytes: \"%s\"", longest_name, shown(name))));
	return name;
}

bool
find_row(Table *table, const text *name, TupleTableSlot *slot)
{
	ScanKeyData key;

	key_equals(&key, primary_index(table), 1, F_TEXTEQ, PointerGetDatum(name));
	if (!find_in_latest_snapshot(table, primary_index(table), &key, 1, slot))
		return false;
	// Unpins the page: the caller may wait for the row.
	ExecMaterializeSlot(slot);
	return true;
}

// After a pause, or a change of a setting, messages may have become claimable. The worker does not
// know when messages of a paused queue are due.
void
tell_of_due(Call *call, Table *table, TupleTableSlot *row)
{
	Queue queue = {};
	TimestampTz next;
	bool isnull;

	if (DatumGetBool(table->get(row, queues_col::paused, &isnull)))
		return;
	queue.name = DatumGetTextPP(table->get(row, queues_col::queue, &isnull));
	if (has_due(call, &queue))
		note_due(queue.name, call->now, call->now);
	next = next_due_after(call, &queue, call->now);
	if (next != DT_NOEND)
		note_due(queue.name, next, call->now);
}

// What is only done to an empty queue.
struct Emptied {
	const char *refused; // with the name of the queue in it
	const char *hint;
};
constexpr Emptied dropping = {"queue \"%s\" cannot be dropped",
							  "Stop its producers, let workers finish its messages or end them with outbox.cancel, "
							  "then drop it."};
constexpr Emptied reordering = {"the ordering of queue \"%s\" cannot be changed to or from fifo",
								"Stop its producers, let workers finish its messages or end them with outbox.cancel, "
								"then change it; or make another queue."};

constexpr Emptied refairing = {"fair_by and max_in_flight_per_key of queue \"%s\" cannot be set or removed",
							   "Stop its producers, let workers finish its messages or end them with outbox.cancel, "
							   "then change it; or make another queue."};

[[noreturn]] void
queue_in_use(const Emptied &what, const text *name, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg(what.refused, shown(name)), errdetail("%s", detail),
					errhint("%s", what.hint)));
}

bool
holds_rows(Table *table, int which, const text *name)
{
	Relation index = own_index(table, which);
	ScanKeyData key;
	Probe probe;
	bool found;

	key_equals(&key, index, 1, F_TEXTEQ, PointerGetDatum(name));
	begin_probe(&probe, table, index, 1);
	start_probe(&probe, &key, 1);
	// Producers are shut out, but a row that is claimed or renewed meanwhile moves in the
	// index: nothing found is looked for again in a snapshot.
	found = next_row(&probe) || find_in_latest_snapshot(table, index, &key, 1, probe.slot);
	end_probe(&probe);
	return found;
}

// Shuts out producers, and refuses while a message is pending, committed or not yet, by anybody. Marks of keys go.
void
require_empty(Call *call, const Emptied &what, const text *name)
{
	if (!try_to_lock_queue(name, AccessExclusiveLock))
		queue_in_use(what, name, "A transaction that enqueued into it, or drops it, is still open.");
	// A row leaves the first index for the second.
	for (int which : {pending_index::held_back, pending_index::due})
		if (holds_rows(pending(call), which, name))
			queue_in_use(what, name, "It holds pending messages.");
	forget_marks(call, name);
}

// Producers are shut out, and so are sessions that name it as a dead_letter_queue.
void
require_unnamed(Call *call, const text *name)
{
	ListCell *cell;

	foreach (cell, all_queues(call))
	{
		const Queue *other = static_cast<const Queue *>(lfirst(cell));

		if (other->dead_letter_queue != nullptr && equal(other->dead_letter_queue, name))
			ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST), errmsg(dropping.refused, shown(name)),
							errdetail("It is the dead_letter_queue of queue \"%s\".", shown(other->name)),
							errhint("Remove it there: outbox.alter_queue(queue, dead_letter_queue => '').")));
	}
}

// Rows of an ordered queue know their place, and those of a fair one their key; those of others do not.
void
check_reordering(Call *call, Table *table, TupleTableSlot *found, TupleTableSlot *row)
{
	bool isnull;
	const text *name = DatumGetTextPP(table->get(found, queues_col::queue, &isnull));
	auto is_fifo = [&](TupleTableSlot *slot) {
		return strcmp(TextDatumGetCString(table->get(slot, queues_col::ordering, &isnull)), "fifo") == 0;
	};
	auto is_set = [&](TupleTableSlot *slot, int column) {
		table->get(slot, column, &isnull);
		return !isnull;
	};

	if (is_fifo(found) != is_fifo(row))
		require_empty(call, reordering, name);
	for (int column : {queues_col::fair_by, queues_col::max_in_flight_per_key})
		if (is_set(found, column) != is_set(row, column))
			require_empty(call, refairing, name);
}

bool
audits(Table *table, TupleTableSlot *row)
{
	bool isnull;

	return DatumGetBool(table->get(row, queues_col::audit_events, &isnull));
}

// Changes the queue's row by change(call, table, row), and looks again if it was changed.
template <typename Change>
void
change_queue(FunctionCallInfo fcinfo, const char *function, Audited what, const Change &change)
{
	text *name = required_text(fcinfo, 0, "queue");
	TupleTableSlot *found;
	TupleTableSlot *row;
	Changed changed;
	Table *table;
	Call call;

	begin_call(&call, function);
	table = open(&call, queues_shape, updates);
	found = table_slot_create(table->rel, nullptr);
	row = new_row(table);
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!find_row(table, name, found))
			raise_queue_not_found(name);
		ExecCopySlot(row, found);
		change(&call, table, row);
		check_reordering(&call, table, found, row);
		changed = update_row(table, &found->tts_tid, row, Wait::for_row);
	} while (changed != Changed::done);
	tell_of_due(&call, table, row);
	record_queue_event(&call, what, name, found, row);
	ExecDropSingleTupleTableSlot(found);
	ExecDropSingleTupleTableSlot(row);
	end_call(&call);
}

void
set_paused(FunctionCallInfo fcinfo, const char *function, Audited what, bool paused)
{
	change_queue(fcinfo, function, what, [&](Call *, Table *table, TupleTableSlot *row) {
		set(table, row, queues_col::paused, BoolGetDatum(paused));
	});
}

} // namespace

OUTBOX_FUNCTION(outbox_create_queue)
{
	text *name = queue_argument(fcinfo);
	FunctionOwners owners = owners_of_functions(fcinfo);
	unsigned char key_bytes[8];
	uint64 hash;
	ScanKeyData key;
	KeyLock held;
	Probe probe;
	Table *table;
	TupleTableSlot *row;
	Call call;

	begin_call(&call, "create_queue()");
	table = open(&call, queues_shape, inserts);
	row = new_row(table);
	set_text(table, row, queues_col::queue, name);
	put_settings(fcinfo, &call, owners, table, row, false);
	set(table, row, queues_col::created_at, TimestampTzGetDatum(call.now));
	hash = DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char *>(VARDATA_ANY(name)),
											static_cast<int>(VARSIZE_ANY_EXHDR(name)), 1));
	memcpy(key_bytes, &hash, sizeof(hash));
	key_equals(&key, primary_index(table), 1, F_TEXTEQ, PointerGetDatum(name));
	begin_probe(&probe, table, primary_index(table), 1);
	if (look_up_latched(&probe, &key, 1, ForwardScanDirection, &held, key_bytes, sizeof(key_bytes)))
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("queue \"%s\" already exists", shown(name)),
						errhint("Use outbox.alter_queue to change it.")));
	insert_rows(table, &row, 1);
	note_created(name);
	unlock_key(&held);
	end_probe(&probe);
	record_queue_event(&call, Audited::queue_created, name, nullptr, row);
	ExecDropSingleTupleTableSlot(row);
	end_call(&call);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_alter_queue)
{
	FunctionOwners owners = owners_of_functions(fcinfo);

	change_queue(fcinfo, "alter_queue()", Audited::queue_altered, [&](Call *call, Table *table, TupleTableSlot *row) {
		put_settings(fcinfo, call, owners, table, row, true);
	});
	note_limit(PG_GETARG_TEXT_PP(0));
	note_altered(PG_GETARG_TEXT_PP(0));
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_pause)
{
	set_paused(fcinfo, "pause()", Audited::queue_paused, true);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_resume)
{
	set_paused(fcinfo, "resume()", Audited::queue_resumed, false);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_drop_queue)
{
	text *name = required_text(fcinfo, 0, "queue");
	TupleTableSlot *found;
	Table *table;
	Call call;

	begin_call(&call, "drop_queue()");
	queue_named(&call, name);
	require_empty(&call, dropping, name);
	require_unnamed(&call, name);
	table = open(&call, queues_shape, deletes);
	found = table_slot_create(table->rel, nullptr);
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!find_row(table, name, found))
			break;
		check_privacy_of_dropped(&call, table, found);
	} while (delete_row(table, &found->tts_tid, Wait::for_row) != Changed::done);
	forget_spending(&call, name);
	note_dropped(name);
	record_queue_event(&call, Audited::queue_dropped, name, found, nullptr);
	ExecDropSingleTupleTableSlot(found);
	end_call(&call);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_merge_queue)
{
	TriggerData *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);
	TupleTableSlot *found;
	TupleTableSlot *row;
	Table *table;
	bool merged;
	bool isnull;
	Datum name;
	Call call;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("outbox.merge_queue must be called as a trigger before insert for each row")));
	begin_reading(&call);
	if (RelationGetRelid(trigger->tg_relation) != relation_oid(queues_shape.name))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("outbox.merge_queue is for outbox.queues, not for table \"%s\"",
							   RelationGetRelationName(trigger->tg_relation))));
	table = open(&call, queues_shape, updates);
	found = table_slot_create(table->rel, nullptr);
	row = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsHeapTuple);
	ExecStoreHeapTuple(trigger->tg_trigtuple, row, false);
	name = table->get(row, queues_col::queue, &isnull);
	merged = !isnull && find_row(table, DatumGetTextPP(name), found);
	if (merged && update_row(table, &found->tts_tid, row, Wait::for_row) != Changed::done)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("queue \"%s\" was changed concurrently", shown(DatumGetTextPP(name)))));
	if (audits(table, row) || (merged && audits(table, found)))
		note_auditing_changed(&call);
	ExecDropSingleTupleTableSlot(found);
	ExecDropSingleTupleTableSlot(row);
	end_call(&call);
	return PointerGetDatum(merged ? nullptr : trigger->tg_trigtuple);
}

} // namespace outbox
