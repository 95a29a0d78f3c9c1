// create_queue, alter_queue, drop_queue, pause, resume; and the trigger that lets a dump
// restore the settings of queues that exist.
//
// Guarantees: changes act on the newest committed row, in every isolation level. A setting that this version does not
// support is refused. drop_queue is refused, without waiting, if rows are pending or an open transaction has enqueued.

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
#include "message/handler.h"
#include "message/validator.h"
#include "verbs/queue_events.h"
#include "verbs/queue_privacy.h"

namespace outbox {

namespace {

constexpr int longest_name = NAMEDATALEN - 1;

// Where NULL means none, this keeps the setting.
constexpr int keep = -1;

constexpr int settings[] = {queues_col::lease,           queues_col::backoff_base,    queues_col::backoff_cap,
							queues_col::backoff_jitter,  queues_col::repair_delay,    queues_col::ordering,
							queues_col::on_dead_head,    queues_col::paused,          queues_col::payload_kind,
							queues_col::handler_timeout, queues_col::reveal_on_claim, queues_col::audit_events};

// The arguments stand as the table's columns do, but for those that are no argument.
constexpr int
argument_of(int column)
{
	return column - (column > queues_col::created_at) - (column > queues_col::validator_owner) -
		   (column > queues_col::handler_owner);
}

text *
queue_argument(FunctionCallInfo fcinfo)
{
	text *name = required_nonempty_text(fcinfo, 0, "queue");

	if (VARSIZE_ANY_EXHDR(name) > longest_name)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("queue must not be longer than %d bytes: \"%s\"", longest_name, shown(name))));
	return name;
}

void
check_choice(Datum value, const char *name, std::initializer_list<const char *> choices)
{
	const char *chosen = TextDatumGetCString(value);

	for (const char *choice : choices)
		if (strcmp(chosen, choice) == 0)
			return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for %s: \"%s\"", name, shown(DatumGetTextPP(value)))));
}

void
check_setting(int column, Datum value)
{
	using namespace queues_col;
	const char *name = queues_shape.columns[column].name;

	switch (column)
	{
		case lease:
		case handler_timeout:
			positive_interval_us(DatumGetIntervalP(value), name);
			break;
		case backoff_base:
		case backoff_cap:
		case repair_delay:
			nonnegative_interval_us(DatumGetIntervalP(value), name);
			break;
		case backoff_jitter:
			if (!(DatumGetFloat4(value) >= 0 && DatumGetFloat4(value) <= 1))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be between 0 and 1, not %g", name,
																		  static_cast<double>(DatumGetFloat4(value)))));
			break;
		case ordering:
			check_choice(value, name, {"none", "numbered", "fifo"});
			break;
		case on_dead_head:
			check_choice(value, name, {"continue", "block"});
			break;
		case payload_kind:
			check_choice(value, name, {"object", "any"});
			break;
		default:
			break;
	}
}

// NULL means none. False: the setting stays, or is none.
bool
is_given(FunctionCallInfo fcinfo, int column, Table *table, TupleTableSlot *row, bool keeps)
{
	bool none = PG_ARGISNULL(argument_of(column));

	if (none)
		set_null(table, row, column);
	return !none && !keeps;
}

// A ceiling of at least `least`. NULL means none.
void
put_ceiling(FunctionCallInfo fcinfo, int column, int least, Table *table, TupleTableSlot *row, bool keep_absent)
{
	int argument = argument_of(column);

	if (!is_given(fcinfo, column, table, row, keep_absent && PG_GETARG_INT32(argument) == keep))
		return;
	check_at_least(PG_GETARG_INT32(argument), least, queues_shape.columns[column].name);
	set(table, row, column, PG_GETARG_DATUM(argument));
}

void
put_rate(FunctionCallInfo fcinfo, Table *table, TupleTableSlot *row, bool keep_absent)
{
	double rate = PG_GETARG_FLOAT8(argument_of(queues_col::rate_limit));

	if (!is_given(fcinfo, queues_col::rate_limit, table, row, keep_absent && rate == keep))
		return;
	if (!(rate > 0) || std::isinf(rate))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("rate_limit must be greater than zero and finite, not %g", rate)));
	set(table, row, queues_col::rate_limit, Float8GetDatum(rate));
}

// NULL keeps it, the empty string removes it.
void
put_fair_by(FunctionCallInfo fcinfo, Table *table, TupleTableSlot *row, bool keep_absent)
{
	const text *by = optional_text(fcinfo, argument_of(queues_col::fair_by));
	bool none = by == nullptr || VARSIZE_ANY_EXHDR(by) == 0;

	if (by == nullptr && keep_absent)
		return;
	if (!none)
		check_choice(PointerGetDatum(by), "fair_by", {"partition_key"});
	set_text(table, row, queues_col::fair_by, none ? nullptr : by);
}

// NULL keeps it, 0 removes it.
void
put_aging(FunctionCallInfo fcinfo, Table *table, TupleTableSlot *row, bool keep_absent)
{
	int argument = argument_of(queues_col::priority_aging);

	if (PG_ARGISNULL(argument) && keep_absent)
		return;
	if (PG_ARGISNULL(argument) || nonnegative_interval_us(PG_GETARG_INTERVAL_P(argument), "priority_aging") == 0)
		set_null(table, row, queues_col::priority_aging);
	else
		set(table, row, queues_col::priority_aging, PG_GETARG_DATUM(argument));
}

// The order of keys and that of rising priorities are different orders.
void
refuse_two_orders(Table *table, TupleTableSlot *row)
{
	bool isnull;
	auto given = [&](int column) {
		table->get(row, column, &isnull);
		return !isnull;
	};

	if (!given(queues_col::priority_aging))
		return;
	for (int column : {queues_col::fair_by, queues_col::max_in_flight_per_key})
		if (given(column))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("a queue cannot have both priority_aging and %s", queues_shape.columns[column].name),
							errhint("Remove one of them. Without priority_aging priorities are strict.")));
}

// Of the functions that are given, or nullptr.
struct FunctionOwners {
	const text *validator;
	const text *handler;
};

// Call it before begin_call(), as the caller.
FunctionOwners
owners_of_functions(FunctionCallInfo fcinfo)
{
	auto owner = [&](int column, const text *(*check)(const text *)) -> const text * {
		const text *name = optional_text(fcinfo, argument_of(column));

		return name != nullptr && VARSIZE_ANY_EXHDR(name) > 0 ? check(name) : nullptr;
	};

	return {owner(queues_col::validator, check_validator), owner(queues_col::handler, check_handler)};
}

// NULL keeps it, the empty string removes it.
void
put_function(FunctionCallInfo fcinfo, int column, int owner_column, const text *owner, Table *table,
			 TupleTableSlot *row, bool keep_absent)
{
	const text *name = optional_text(fcinfo, argument_of(column));

	if (name == nullptr && keep_absent)
		return;
	set_text(table, row, column, owner != nullptr ? name : nullptr);
	set_text(table, row, owner_column, owner);
}

[[noreturn]] void
refuse_dead_letter_queue(const char *problem, const text *queue, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(problem, shown(queue)), errdetail("%s", detail),
					errhint("Dead letters are told over one step: the queue that they are told to has no "
							"dead_letter_queue itself.")));
}

// Queue `from` names `to`, which cannot be dropped until the end of the transaction. Sessions that name one wait for
// each other, so that no two of them make a chain.
void
check_dead_letter_queue(Call *call, const text *from, const text *to)
{
	ListCell *cell;

	refuse_queue_of_seals(to);
	if (equal(from, to))
		refuse_dead_letter_queue("queue \"%s\" must not be its own dead_letter_queue", from,
								 "Notices that die would be told again and again.");
	hold_queue(call, to);
	lock_dead_letter_queues();
	foreach (cell, all_queues(call))
	{
		const Queue *other = static_cast<const Queue *>(lfirst(cell));

		if (other->dead_letter_queue == nullptr)
			continue;
		if (equal(other->name, to))
			refuse_dead_letter_queue("queue \"%s\" cannot be a dead_letter_queue", to,
									 psprintf("Its own is queue \"%s\".", shown(other->dead_letter_queue)));
		if (equal(other->dead_letter_queue, from))
			refuse_dead_letter_queue("queue \"%s\" cannot have a dead_letter_queue", from,
									 psprintf("It is that of queue \"%s\".", shown(other->name)));
	}
}

// NULL keeps it, the empty string removes it.
void
put_dead_letter_queue(FunctionCallInfo fcinfo, Call *call, Table *table, TupleTableSlot *row, bool keep_absent)
{
	const text *name = optional_text(fcinfo, argument_of(queues_col::dead_letter_queue));
	bool none = name == nullptr || VARSIZE_ANY_EXHDR(name) == 0;
	bool isnull;

	if (name == nullptr && keep_absent)
		return;
	if (!none)
		check_dead_letter_queue(call, DatumGetTextPP(table->get(row, queues_col::queue, &isnull)), name);
	set_text(table, row, queues_col::dead_letter_queue, none ? nullptr : name);
}

// Puts the given settings into the row. NULL keeps a setting; for a new queue it is an ERROR.
void
put_settings(FunctionCallInfo fcinfo, Call *call, const FunctionOwners &owners, Table *table, TupleTableSlot *row,
			 bool keep_absent)
{
	put_ceiling(fcinfo, queues_col::max_attempts, 1, table, row, keep_absent);
	put_ceiling(fcinfo, queues_col::max_releases, 0, table, row, keep_absent);
	for (int column : settings)
	{
		int argument = argument_of(column);

		if (keep_absent && PG_ARGISNULL(argument))
			continue;
		check_setting(column, required_datum(fcinfo, argument, queues_shape.columns[column].name));
		set(table, row, column, PG_GETARG_DATUM(argument));
	}
	put_function(fcinfo, queues_col::validator, queues_col::validator_owner, owners.validator, table, row, keep_absent);
	put_function(fcinfo, queues_col::handler, queues_col::handler_owner, owners.handler, table, row, keep_absent);
	for (int column : {queues_col::max_in_flight, queues_col::rate_burst, queues_col::max_in_flight_per_key})
		put_ceiling(fcinfo, column, 1, table, row, keep_absent);
	put_rate(fcinfo, table, row, keep_absent);
	put_fair_by(fcinfo, table, row, keep_absent);
	put_aging(fcinfo, table, row, keep_absent);
	refuse_two_orders(table, row);
	put_dead_letter_queue(fcinfo, call, table, row, keep_absent);
	put_privacy(fcinfo, argument_of, call, table, row, keep_absent);
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
