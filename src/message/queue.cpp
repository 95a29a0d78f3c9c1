// See queue.h. Reading; administration is in queue_admin.cpp.

#include "message/queue.h"

#include "core/backoff.h"
#include "rows/probe.h"
#include "server/digest.h"
#include "server/settings.h"

namespace outbox {

namespace {

// A few bits of the digest of its name, before those of the keys.
int64
fair_base_of(const Queue *queue)
{
	core::Part parts[] = {part_of(queue->name), {"", 0}};
	int64 base =
		static_cast<int64>(leading_bits(digest_of(core::KeyKind::partition, parts, 2)) >> (64 - fair_queue_bits))
		<< fair_key_bits;

	return queue->max_in_flight_per_key > 0 ? base + PG_INT64_MIN : base;
}

Queue *
decode(Table *table, TupleTableSlot *slot)
{
	Queue *queue = static_cast<Queue *>(palloc0(sizeof(Queue)));
	bool isnull;
	auto number = [&](int column, int none) {
		Datum value = table->get(slot, column, &isnull);

		return isnull ? none : DatumGetInt32(value);
	};
	auto given = [&](int column) {
		table->get(slot, column, &isnull);
		return !isnull;
	};
	auto us = [&](int column) {
		return interval_us(DatumGetIntervalP(table->get(slot, column, &isnull)), table->shape->columns[column].name);
	};
	auto says = [&](int column, const char *value) {
		const text *setting = DatumGetTextPP(table->get(slot, column, &isnull));
		size_t length = strlen(value);

		return VARSIZE_ANY_EXHDR(setting) == length && memcmp(VARDATA_ANY(setting), value, length) == 0;
	};

	queue->max_attempts = number(queues_col::max_attempts, 0);
	queue->max_releases = number(queues_col::max_releases, -1);
	queue->max_in_flight = number(queues_col::max_in_flight, 0);
	queue->rate_limit = DatumGetFloat8(table->get(slot, queues_col::rate_limit, &isnull));
	queue->rate_limit = isnull ? 0 : queue->rate_limit;
	queue->rate_burst = number(queues_col::rate_burst, 0);
	queue->max_in_flight_per_key = number(queues_col::max_in_flight_per_key, 0);
	queue->fair = given(queues_col::fair_by) || queue->max_in_flight_per_key > 0;
	queue->priority_aging_us = given(queues_col::priority_aging) ? us(queues_col::priority_aging) : 0;
	queue->name = DatumGetTextPCopy(table->get(slot, queues_col::queue, &isnull));
	queue->fair_base = queue->fair ? fair_base_of(queue) : 0;
	queue->lease_us = us(queues_col::lease);
	queue->backoff_base_us = us(queues_col::backoff_base);
	queue->backoff_cap_us = us(queues_col::backoff_cap);
	queue->repair_delay_us = us(queues_col::repair_delay);
	queue->backoff_jitter = static_cast<double>(DatumGetFloat4(table->get(slot, queues_col::backoff_jitter, &isnull)));
	queue->numbered = !says(queues_col::ordering, "none");
	queue->fifo = says(queues_col::ordering, "fifo");
	queue->blocks = says(queues_col::on_dead_head, "block");
	queue->validator = copied_text(table, slot, queues_col::validator);
	queue->validator_owner = copied_text(table, slot, queues_col::validator_owner);
	queue->handler = copied_text(table, slot, queues_col::handler);
	queue->handler_owner = copied_text(table, slot, queues_col::handler_owner);
	queue->handler_timeout_us = us(queues_col::handler_timeout);
	queue->dead_letter_queue = copied_text(table, slot, queues_col::dead_letter_queue);
	queue->protect =
		given(queues_col::protect) ? DatumGetJsonbPCopy(table->get(slot, queues_col::protect, &isnull)) : nullptr;
	queue->reveals = DatumGetBool(table->get(slot, queues_col::reveal_on_claim, &isnull));
	queue->refuses_encoded =
		VARSIZE_ANY_EXHDR(DatumGetPointer(table->get(slot, queues_col::payload_kind, &isnull))) > 3;
	queue->audited = DatumGetBool(table->get(slot, queues_col::audit_events, &isnull));
	queue->paused = DatumGetBool(table->get(slot, queues_col::paused, &isnull)) || everything_is_held();
	queue->created_at = DatumGetTimestampTz(table->get(slot, queues_col::created_at, &isnull));
	return queue;
}

} // namespace

namespace {

LOCKTAG
lock_tag_of(const text *name)
{
	uint64 hash = DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char *>(VARDATA_ANY(name)),
												   static_cast<int>(VARSIZE_ANY_EXHDR(name)), 0));
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, relation_oid(queues_shape.name), static_cast<uint32>(hash),
					   static_cast<uint16>(hash >> 32));
	return tag;
}

} // namespace

bool
try_to_lock_queue(const text *name, LOCKMODE mode)
{
	LOCKTAG tag = lock_tag_of(name);

	return LockAcquire(&tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
unlock_queue(const text *name, LOCKMODE mode)
{
	LOCKTAG tag = lock_tag_of(name);

	LockRelease(&tag, mode, false);
}

namespace {

Queue *
read_queue(Call *call, const text *name)
{
	Table *table = open(call, queues_shape, reads);
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	ScanKeyData key;
	Queue *queue = nullptr;

	key_equals(&key, primary_index(table), 1, F_TEXTEQ, PointerGetDatum(name));
	if (find_in_latest_snapshot(table, primary_index(table), &key, 1, slot))
		queue = decode(table, slot);
	ExecDropSingleTupleTableSlot(slot);
	return queue;
}

} // namespace

const Queue *
find_queue(Call *call, const text *name)
{
	Queue *queue;

	for (queue = call->queues; queue != nullptr; queue = queue->next)
		if (equal(queue->name, name))
			return queue;
	queue = read_queue(call, name);
	if (queue != nullptr)
	{
		queue->next = call->queues;
		call->queues = queue;
	}
	return queue;
}

void
raise_queue_not_found(const text *name)
{
	ereport(ERROR, (errcode(ERRCODE_OUTBOX_QUEUE_NOT_FOUND),
					errmsg("QUEUE_NOT_FOUND: queue \"%s\" does not exist", shown(name)),
					errhint("Create it with outbox.create_queue.")));
}

const Queue *
queue_named(Call *call, const text *name)
{
	const Queue *queue = find_queue(call, name);

	if (queue == nullptr)
		raise_queue_not_found(name);
	return queue;
}

List *
all_queues(Call *call, Snapshot snapshot)
{
	Table *table = open(call, queues_shape, reads);
	Snapshot used = RegisterSnapshot(snapshot != nullptr ? snapshot : GetLatestSnapshot());
	IndexScanDesc scan = begin_index_scan(table->rel, primary_index(table), SnapshotAny, 0);
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	List *result = NIL;

	index_rescan(scan, nullptr, 0, nullptr, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
		if (table_tuple_satisfies_snapshot(table->rel, slot, used))
			result = lappend(result, decode(table, slot));
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(used);
	return result;
}

namespace {

void
hold_against_drop(const text *name, Wait wait)
{
	LOCKTAG tag = lock_tag_of(name);

	expect_no_pins();
	if (LockAcquire(&tag, AccessShareLock, false, wait == Wait::never) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("queue \"%s\" is being changed by another transaction", shown(name)),
						errhint("Try again when that transaction has ended.")));
}

} // namespace

const Queue *
hold_queue(Call *call, const text *name)
{
	hold_against_drop(name, call->wait);
	return queue_named(call, name);
}

const Queue *
hold_queue_if_there(Call *call, const text *name, Wait wait)
{
	hold_against_drop(name, wait);
	// Not as this call has read it before it had the lock.
	return read_queue(call, name);
}

void
refuse_queue_of_seals(const text *name)
{
	if (equal(name, cstring_to_text(queue_of_seals)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to enqueue into queue \"%s\"", shown(name)),
				 errdetail("Its messages are seals, which outbox.seal() writes."), errhint("Use another queue.")));
}

void
lock_dead_letter_queues()
{
	// No queue has this name.
	LOCKTAG tag = lock_tag_of(cstring_to_text(""));

	expect_no_pins();
	LockAcquire(&tag, ExclusiveLock, false, false);
}

List *
queue_names_argument(FunctionCallInfo fcinfo, int arg, const char *default_name)
{
	List *result = NIL;
	ArrayArg names;

	if (PG_ARGISNULL(arg) && default_name != nullptr)
		return list_make1(cstring_to_text(default_name));
	names = required_array(fcinfo, arg, "queues");
	if (names.count == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("queues must not be empty"),
						default_name != nullptr ? errhint("Pass NULL for queue \"%s\".", default_name)
												: errhint("Pass NULL for all queues.")));
	check_no_nulls(names, "queues");
	for (int i = 0; i < names.count; i++)
	{
		text *name;
		bool repeated = false;
		ListCell *cell;

		CHECK_FOR_INTERRUPTS();
		name = DatumGetTextPCopy(names.items[i]);
		foreach (cell, result)
			repeated |= equal(static_cast<const text *>(lfirst(cell)), name);
		if (!repeated)
			result = lappend(result, name);
	}
	return result;
}

List *
queues_named(Call *call, const List *names)
{
	List *result = NIL;
	ListCell *cell;

	foreach (cell, names)
		result = lappend(result, const_cast<Queue *>(queue_named(call, static_cast<const text *>(lfirst(cell)))));
	return result;
}

void
refuse_handled(const Queue *queue)
{
	if (queue->handler == nullptr)
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("queue \"%s\" has a handler", shown(queue->name)),
		 errdetail("Its messages are handled inside the database, by %s.", shown(queue->handler)),
		 errhint("Claim from another queue, or remove the handler with outbox.alter_queue(queue, handler => '').")));
}

List *
queues_to_claim(Call *call, const List *names)
{
	List *result = queues_named(call, names);
	ListCell *cell;

	foreach (cell, result)
		refuse_handled(static_cast<const Queue *>(lfirst(cell)));
	return result;
}

int64
queue_backoff_us(const Queue *queue, int attempt_no, const core::Uuid *id)
{
	if (id == nullptr || queue->backoff_jitter <= 0)
		return core::backoff_us(queue->backoff_base_us, queue->backoff_cap_us, attempt_no);
	return core::jittered_backoff_us(queue->backoff_base_us, queue->backoff_cap_us, attempt_no, queue->backoff_jitter,
									 *id);
}

} // namespace outbox
