// See intake.h.

#include "inbox/intake.h"

#include "inbox/closed.h"
#include "server/args.h"
#include "server/spi.h"
#include "server/stop_point.h"

namespace outbox {

// In the order of the install script, which puts what is narrow first.
const Shape events_shape = {
	"events",
	{{"consumed_at", TIMESTAMPTZOID, Column::not_null},
	 {"event_id", UUIDOID, Column::not_null},
	 {"processing_duration_ms", INT4OID},
	 {"schema_version", INT4OID},
	 {"consumer", TEXTOID, Column::not_null},
	 {"source", TEXTOID, Column::not_null},
	 {"event_type", TEXTOID, Column::not_null},
	 {"payload", JSONBOID}},
	{{"pkey", true, {"event_id"}, nullptr}},
	{{"consumer", nullptr}},
	{},
};

namespace {

constexpr Size longest_consumer = 63;
namespace partitions_col {
enum { consumer = 1, number, begins, consumer_id };
}
namespace failures_col {
enum { consumer = 1, event_id, failures, dead_at };
}

Oid
inbox_relation(const char *name)
{
	return get_relname_relid(name, get_namespace_oid("inbox", false));
}

Relation
open_table_of_inbox(const char *name)
{
	Oid oid = inbox_relation(name);
	Relation rel;

	expect_no_pins();
	rel = OidIsValid(oid) ? try_table_open(oid, AccessShareLock) : nullptr;
	if (rel == nullptr)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation inbox.%s is missing", name)));
	return rel;
}

[[noreturn]] void
lacks_key(Relation rel)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("table inbox.%s has no primary key of its first two columns", RelationGetRelationName(rel)),
					errhint("inbox.check() says which it should have.")));
}

// Whether it is over the first two columns, as the probes assume.
bool
is_as_made(Relation index)
{
	const FormData_pg_index *key = index->rd_index;

	return key->indnkeyatts == 2 && key->indkey.values[0] == 1 && key->indkey.values[1] == 2;
}

void
open_register(Register *reg, Relation rel, int nkeys)
{
	Oid primary = primary_key_index(rel);

	if (!OidIsValid(primary))
		lacks_key(rel);
	reg->rel = rel;
	reg->index = index_open(primary, AccessShareLock);
	if (!is_as_made(reg->index))
		lacks_key(rel);
	begin_probe(&reg->probe, reg->rel, reg->index, nkeys);
}

void
close_register(Register *reg)
{
	if (reg->rel == nullptr)
		return;
	end_probe(&reg->probe);
	index_close(reg->index, AccessShareLock);
	table_close(reg->rel, AccessShareLock);
}

void
open_failures(Intake *intake)
{
	Relation rel = open_table_of_inbox("failures");

	if (RelationGetNumberOfBlocks(rel) > 0)
		open_register(&intake->failures, rel, 2);
	else
		table_close(rel, AccessShareLock);
}

void
close_shelf(Shelf *shelf)
{
	bool writes;

	if (shelf->table == nullptr)
		return;
	writes = shelf->table->access != reads;
	end_probe(&shelf->probe);
	close_table(shelf->table);
	shelf->table = nullptr;
	if (writes)
		return;
	// What was only looked into may be dropped.
	UnlockRelationOid(shelf->index, AccessShareLock);
	UnlockRelationOid(shelf->heap, AccessShareLock);
}

void
close_shelves(Intake *intake)
{
	ListCell *cell;

	foreach (cell, intake->shelves)
		close_shelf(static_cast<Shelf *>(lfirst(cell)));
	intake->shelves = NIL;
}

int32
number_at(TupleTableSlot *row, int column)
{
	bool isnull;

	return DatumGetInt32(slot_getattr(row, column, &isnull));
}

bool
is_own_row(TupleTableSlot *row)
{
	HeapTuple tuple = ExecFetchSlotHeapTuple(row, false, nullptr);

	return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
}

// The partitions of a consumer, newest first.
struct Listed {
	List *numbers;
	List *own;             // made by this transaction
	TransactionId opening; // makes others
	TransactionId closing; // drops some
};

void
list_row(Intake *intake, Listed *listed)
{
	Probe *probe = &intake->partitions.probe;
	int32 number = number_at(probe->slot, partitions_col::number);

	if (TransactionIdIsValid(probe->inserter()))
		listed->opening = probe->inserter();
	else if (TransactionIdIsValid(probe->changer()))
		listed->closing = probe->changer();
	else if (is_own_row(probe->slot))
		listed->own = lappend_int(listed->own, number);
	else
		listed->numbers = lappend_int(listed->numbers, number);
	intake->consumer_id = number_at(probe->slot, partitions_col::consumer_id);
}

Listed
list_partitions(Intake *intake)
{
	Register *reg = &intake->partitions;
	Listed listed = {};
	ScanKeyData key;

	key_equals(&key, reg->index, 1, F_TEXTEQ, PointerGetDatum(intake->consumer));
	start_probe(&reg->probe, &key, 1);
	while (next_row(&reg->probe, BackwardScanDirection))
		list_row(intake, &listed);
	rest_probe(&reg->probe);
	return listed;
}

// An older partition that is settled decides: what is made or was made by ourselves waits for its commit.
Obstacle
judge_partitions(const Listed *listed, List **numbers)
{
	*numbers = listed->numbers != NIL ? listed->numbers : listed->own;
	if (TransactionIdIsValid(listed->closing))
		return {false, listed->closing};
	if (*numbers == NIL)
		return {!TransactionIdIsValid(listed->opening), listed->opening};
	return {};
}

bool
are_listed(const List *shelves, const List *numbers)
{
	ListCell *shelf;
	ListCell *number;

	if (list_length(shelves) != list_length(numbers))
		return false;
	forboth (shelf, shelves, number, numbers)
		if (static_cast<Shelf *>(lfirst(shelf))->number != lfirst_int(number))
			return false;
	return true;
}

void
list_shelves(Intake *intake, const List *numbers)
{
	ListCell *cell;

	if (are_listed(intake->shelves, numbers))
		return;
	close_shelves(intake);
	foreach (cell, numbers)
	{
		Shelf *shelf = static_cast<Shelf *>(palloc0(sizeof(Shelf)));

		shelf->number = lfirst_int(cell);
		intake->shelves = lappend(intake->shelves, shelf);
	}
}

// Past the caches of the catalogs. These learn of a partition by a message that comes after its commit. The session
// that made it holds its lock until the message is sent.
Oid
committed_relation(const char *name)
{
	Relation classes = table_open(RelationRelationId, AccessShareLock);
	Relation names = index_open(ClassNameNspIndexId, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(classes, nullptr);
	Oid oid = InvalidOid;
	ScanKeyData keys[2];
	NameData sought;
	bool isnull;

	namestrcpy(&sought, name);
	key_equals(&keys[0], names, 1, F_NAMEEQ, NameGetDatum(&sought));
	key_equals(&keys[1], names, 2, F_OIDEQ, ObjectIdGetDatum(get_namespace_oid("inbox", false)));
	if (find_in_latest_snapshot(classes, names, keys, 2, slot))
		oid = DatumGetObjectId(slot_getattr(slot, Anum_pg_class_oid, &isnull));
	ExecDropSingleTupleTableSlot(slot);
	index_close(names, AccessShareLock);
	table_close(classes, AccessShareLock);
	return oid;
}

// False when it is gone.
bool
open_shelf(Intake *intake, Shelf *shelf, int access)
{
	const char *name = psprintf("events_%d", shelf->number);
	Oid oid = inbox_relation(name);
	Relation rel;
	Relation index;

	if (!OidIsValid(oid))
		oid = committed_relation(name);
	expect_no_pins();
	rel = OidIsValid(oid) ? try_table_open(oid, access == reads ? AccessShareLock : RowExclusiveLock) : nullptr;
	if (rel == nullptr)
		return false;
	shelf->table = wrap_table(events_shape, rel, access, intake->estate);
	index = primary_index(shelf->table);
	shelf->heap = RelationGetRelid(rel);
	shelf->index = RelationGetRelid(index);
	begin_probe(&shelf->probe, shelf->table, index, 1);
	if (access == reads)
		look_whether_closed(shelf->number, rel, index);
	return true;
}

// Only the newest gets new rows. Returns a partition that is gone.
const Shelf *
open_needed(Intake *intake, const core::Uuid *const *ids, int count)
{
	ListCell *cell;

	foreach (cell, intake->shelves)
	{
		Shelf *shelf = static_cast<Shelf *>(lfirst(cell));
		bool newest = cell == list_head(intake->shelves);
		int access = newest || intake->access != inserts ? intake->access : reads;

		if (shelf->table == nullptr && (newest || may_have_any(shelf->number, ids, count)) &&
			!open_shelf(intake, shelf, access))
			return shelf;
	}
	return nullptr;
}

// The newest partition of the consumer for which this session received last: most likely it is so still.
struct {
	char consumer[longest_consumer + 1];
	Oid newest;
} last;

bool
is_last(const text *consumer)
{
	Size size = VARSIZE_ANY_EXHDR(consumer);

	return strlen(last.consumer) == size && memcmp(last.consumer, VARDATA_ANY(consumer), size) == 0;
}

void
remember_last(const text *consumer, Oid newest)
{
	Size size = VARSIZE_ANY_EXHDR(consumer);

	last.newest = newest;
	memcpy(last.consumer, VARDATA_ANY(consumer), size);
	last.consumer[size] = '\0';
}

// Locked for writing before the list of partitions is read: the newest that is open, or was the last time.
Oid
lock_newest(const Intake *intake)
{
	const Shelf *open = intake->shelves != NIL ? static_cast<Shelf *>(linitial(intake->shelves)) : nullptr;

	if (open != nullptr)
		return open->heap;
	if (!is_last(intake->consumer) || !ConditionalLockRelationOid(last.newest, RowExclusiveLock))
		return InvalidOid;
	return last.newest;
}

[[noreturn]] void
partition_is_missing(const Intake *intake)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("a partition of consumer \"%s\" is missing", shown(intake->consumer)),
					errdetail("inbox.partitions lists a table that does not exist."),
					errhint("Use inbox.check() to find it.")));
}

void
make_consumer(Intake *intake)
{
	Oid types[] = {TEXTOID};
	Datum values[] = {PointerGetDatum(intake->consumer)};

	// After that there is one, with a partition, or there will never be.
	if (intake->made)
		partition_is_missing(intake);
	intake->made = true;
	SPI_connect();
	SPI_execute_with_args("SELECT inbox.make_consumer($1)", 1, types, values, nullptr, false, 0);
	SPI_finish();
}

} // namespace

const text *
consumer_argument(FunctionCallInfo fcinfo, int arg)
{
	const text *consumer = required_nonempty_text(fcinfo, arg, "consumer");

	if (VARSIZE_ANY_EXHDR(consumer) > longest_consumer)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("consumer is too long: \"%s\"", shown(consumer)),
				 errdetail("A name has at most %d bytes.", static_cast<int>(longest_consumer))));
	return consumer;
}

void
begin_intake(Intake *intake, const char *function, const text *consumer, int access)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
	memset(intake, 0, sizeof(*intake));
	intake->estate = CreateExecutorState();
	intake->now = GetCurrentTimestamp();
	intake->consumer = consumer;
	intake->access = access;
	GetUserIdAndSecContext(&intake->caller, &intake->caller_context);
	open_register(&intake->partitions, open_table_of_inbox("partitions"), 1);
	SetUserIdAndSecContext(intake->partitions.rel->rd_rel->relowner,
						   intake->caller_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	open_failures(intake);
}

void
end_intake(Intake *intake)
{
	close_shelves(intake);
	close_register(&intake->failures);
	close_register(&intake->partitions);
	FreeExecutorState(intake->estate);
	SetUserIdAndSecContext(intake->caller, intake->caller_context);
	CommandCounterIncrement();
}

uint64
event_hash(const Intake *intake, const core::Uuid &id)
{
	const text *consumer = intake->consumer;
	uint64 seed = hash_bytes_extended(reinterpret_cast<const unsigned char *>(VARDATA_ANY(consumer)),
									  static_cast<int>(VARSIZE_ANY_EXHDR(consumer)), 0);

	return hash_bytes_extended(id.bytes, sizeof(id.bytes), seed);
}

void
lock_event(const Intake *intake, uint64 hash, KeyLock *held)
{
	// The lock stands for the leading bits: who locks events in the order of their hashes takes these in order, too.
	uint64 ordered = pg_hton64(hash);

	lock_key(held, intake->partitions.rel, reinterpret_cast<const unsigned char *>(&ordered), sizeof(ordered));
}

// Once a partition is locked for writing, the list is read again, because the partition may have been closed meanwhile.
Obstacle
open_shelves(Intake *intake, const core::Uuid *const *ids, int count)
{
	Oid locked = lock_newest(intake);
	int32 missing = 0;

	for (;;)
	{
		Listed listed = list_partitions(intake);
		List *numbers;
		Obstacle obstacle = judge_partitions(&listed, &numbers);
		const Shelf *gone;
		Oid newest;

		if (obstacle)
			return obstacle;
		OUTBOX_STOP_POINT("inbox_opens");
		list_shelves(intake, numbers);
		gone = open_needed(intake, ids, count);
		newest = static_cast<Shelf *>(linitial(intake->shelves))->heap;
		if (gone == nullptr && newest == locked)
			return {};
		if (gone != nullptr && gone->number == missing)
			partition_is_missing(intake);
		// Or it was dropped after we had read the list.
		missing = gone != nullptr ? gone->number : 0;
		locked = newest;
		if (gone == nullptr)
			remember_last(intake->consumer, newest);
		AcceptInvalidationMessages();
	}
}

Shelf *
find_event(Intake *intake, const core::Uuid &id)
{
	ListCell *cell;

	foreach (cell, intake->shelves)
	{
		Shelf *shelf = static_cast<Shelf *>(lfirst(cell));

		if (shelf->table == nullptr || !may_have(shelf->number, id))
			continue;
		start_id_probe(&shelf->probe, id);
		if (next_row(&shelf->probe))
			return shelf;
		rest_probe(&shelf->probe);
	}
	return nullptr;
}

bool
has_failed(Intake *intake, const core::Uuid &id, bool *dead)
{
	Register *reg = &intake->failures;
	ScanKeyData keys[2];
	bool found;

	*dead = false;
	if (reg->rel == nullptr)
		return false;
	key_equals(&keys[0], reg->index, 1, F_TEXTEQ, PointerGetDatum(intake->consumer));
	key_equals(&keys[1], reg->index, 2, F_UUID_EQ, in_place(id));
	start_probe(&reg->probe, keys, 2);
	found = next_settled(&reg->probe, ForwardScanDirection);
	*dead = found && !slot_attisnull(reg->probe.slot, failures_col::dead_at);
	rest_probe(&reg->probe);
	return found;
}

void
overcome(Intake *intake, const Obstacle &obstacle)
{
	close_shelves(intake);
	expect_no_pins();
	if (obstacle.unknown)
		make_consumer(intake);
	else
		XactLockTableWait(obstacle.unsettled, nullptr, nullptr, XLTW_None);
	intake->now = GetCurrentTimestamp();
}

} // namespace outbox
