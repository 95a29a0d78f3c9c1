// See closing.h.
//
// How it knows what is final. A tick takes T0 from the clock, publishes it as the floor of records
// (commit/record_floor.h), and then reads the next transaction id N0: the pair is a mark. A transaction with an id from
// N0 on got it after the publication, and so records nothing before T0. Once all transactions below N0 have ended, all
// records before T0 are committed or gone, for good. So a window is closed at the T0 of the newest mark whose N0 is not
// above the oldest transaction that runs, prepared ones included, and the rows are read after that was found. The
// transaction that seals does not wait for itself: what it has recorded before is committed together with the seal, and
// what it records later has a time from T0 on.
//
// Why not the start of the oldest transaction that has written: the server does not tell it of prepared transactions,
// nor where track_activities is off. The id of a transaction is given out under a lock, and the list of those that run
// is read under another one; so both can be compared with what was published before.
//
// Marks are in a table, so that a sealer that starts knows the old ones. They are not in a dump: their ids mean nothing
// in another cluster.

#include "seals/closing.h"

#include "commit/record_floor.h"
#include "message/audit_event.h"
#include "message/enqueueing.h"
#include "seals/proof.h"
#include "seals/sorted.h"
#include "server/boundary.h"
#include "server/settings.h"
#include "server/spi.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// ---- marks

// One sealer at a time, to the end of its transaction. It is no lock on the table, which VACUUM would disturb.
void
lock_sealers()
{
	LockDatabaseObject(RelationRelationId, relation_oid("seals"), 0, ExclusiveLock);
}

// Above the floor even if the clock was set back, so that windows go on.
TimestampTz
next_time(const Seal *last)
{
	TimestampTz floor = Max(published_floor(), last != nullptr ? last->to_at : PG_INT64_MIN);

	return Max(GetCurrentTimestamp(), floor + 1);
}

// Floor first, then the id.
void
make_mark(const Seal *last)
{
	TimestampTz at = next_time(last);
	FullTransactionId next;

	publish_floor(at);
	OUTBOX_STOP_POINT("seal_after_floor");
	next = ReadNextFullTransactionId();
	run_at(at, "INSERT INTO outbox.seal_marks (at, next_xid) VALUES ($1, '" UINT64_FORMAT "')",
		   U64FromFullTransactionId(next));
	OUTBOX_STOP_POINT("seal_after_mark");
}

// Of an id that is in use now.
uint64
full_id(TransactionId id)
{
	uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());

	return next - static_cast<uint32>(static_cast<TransactionId>(next) - id);
}

// All that have begun before have ended, except this one.
uint64
oldest_other()
{
	RunningTransactions running = GetRunningTransactionData();
	TransactionId oldest = running->nextXid;

	for (int i = 0; i < running->xcnt + running->subxcnt; i++)
		if (TransactionIdPrecedes(running->xids[i], oldest) && !TransactionIdIsCurrentTransactionId(running->xids[i]))
			oldest = running->xids[i];
	LWLockRelease(XidGenLock);
	LWLockRelease(ProcArrayLock);
	return full_id(oldest);
}

// The end of the window that can be closed; false: none.
bool
find_end(const Seal *last, TimestampTz *end)
{
	bool isnull;

	run("SELECT pg_catalog.max(at) FROM outbox.seal_marks WHERE next_xid <= '" UINT64_FORMAT "'", oldest_other());
	*end = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	return !isnull && (last == nullptr || *end > last->to_at);
}

// ---- parts

struct Parts {
	SealPart *parts;
	int count;
	int space;
};

void
add_part(Parts *parts, const SealPart *part)
{
	if (parts->count == parts->space)
	{
		parts->space = Max(2 * parts->space, 16);
		parts->parts =
			parts->parts == nullptr
				? static_cast<SealPart *>(palloc(sizeof(SealPart) * static_cast<Size>(parts->space)))
				: static_cast<SealPart *>(repalloc(parts->parts, sizeof(SealPart) * static_cast<Size>(parts->space)));
	}
	parts->parts[parts->count++] = *part;
}

void
seal_leaf(Parts *parts, const SealedLeaf *leaf, TimestampTz from, TimestampTz to)
{
	WindowRows window;
	RowSort sort;

	begin_sort(&sort);
	each_row(leaf, from, to, [&](const SealedRow *row) { sort_row(&sort, 0, row); });
	sort_rows(&sort);
	if (next_window(&sort, &window))
	{
		SealPart part = {leaf->table, leaf->name, window.rows, window.root};

		add_part(parts, &part);
	}
	end_sort(&sort);
}

void
seal_leaves(Seal *seal)
{
	Parts parts = {};
	ListCell *cell;

	foreach (cell, sealed_leaves())
		seal_leaf(&parts, static_cast<const SealedLeaf *>(lfirst(cell)), seal->from_at, seal->to_at);
	seal->parts = parts.parts;
	seal->part_count = parts.count;
}

// ---- the seal

// The hash covers the name of the key: again, if the file was changed between.
void
sign_seal(Seal *seal, const char *file)
{
	Signature signature;

	do
	{
		strlcpy(seal->signature.key_id, public_keys_in(file).keys[0].key_id, sizeof(seal->signature.key_id));
		seal->hash = computed_hash(seal);
		signature = signed_by(file, seal->hash.bytes, sizeof(seal->hash.bytes));
	} while (strcmp(signature.key_id, seal->signature.key_id) != 0);
	seal->signature = signature;
	seal->has_signature = true;
}

void
complete_seal(Seal *seal, const Seal *last)
{
	const char *file = seal_key_file();

	seal->is_signed = file[0] != '\0';
	// A key that cannot be used is an error before all is read.
	if (seal->is_signed)
		public_keys_in(file);
	seal->seal_no = last != nullptr ? last->seal_no + 1 : 1;
	seal->from_at = last != nullptr ? last->to_at : DT_NOBEGIN;
	seal_leaves(seal);
	count_parts(seal, seal->rows);
	write_parts(seal);
	seal->root = root_of_parts(seal);
	seal->has_previous = last != nullptr;
	if (last != nullptr)
		seal->previous = last->hash;
	if (seal->is_signed)
		sign_seal(seal, file);
	else
		seal->hash = computed_hash(seal);
}

void
store_seal(const Seal *seal)
{
	Oid types[] = {INT8OID,  TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID,  INT8OID,  INT8OID,
				   BYTEAOID, JSONBOID,       BYTEAOID,       BYTEAOID, BYTEAOID, TEXTOID};
	Datum values[seal_columns];
	bool isnull[seal_columns];
	char nulls[seal_columns];

	seal_values(seal, values, isnull);
	for (int i = 0; i < seal_columns; i++)
		nulls[i] = isnull[i] ? 'n' : ' ';
	if (SPI_execute_with_args(
			"INSERT INTO outbox.seals (seal_no, from_at, to_at, messages, attempts, events, root, parts, "
			"previous, hash, signature, key_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
			seal_columns, types, values, nulls, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "could not store a seal");
	run_at(seal->to_at, "DELETE FROM outbox.seal_marks WHERE at <= $1");
}

// Blocks that no entry of a BRIN index covers are read for each window. What fails is left for the next seal.
void
summarize(const SealedLeaf *leaf)
{
	uint64 indexes;

	if (!ConditionalLockRelationOid(leaf->oid, ShareUpdateExclusiveLock))
		return;
	indexes = run("SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
				  "JOIN pg_am m ON m.oid = c.relam WHERE i.indrelid = %u AND m.amname = 'brin' AND i.indisvalid",
				  leaf->oid);
	for (uint64 i = 0; i < indexes; i++)
	{
		bool isnull;
		Datum index = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

		in_subtransaction([&] { DirectFunctionCall1(brin_summarize_new_values, index); });
	}
	UnlockRelationOid(leaf->oid, ShareUpdateExclusiveLock);
}

void
summarize_leaves()
{
	ListCell *cell;

	foreach (cell, sealed_leaves())
		summarize(static_cast<const SealedLeaf *>(lfirst(cell)));
}

// A chain that goes on after a seal which cannot be read would hide it.
void
require_form(const Seal *last)
{
	if (!last->has_form)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("seal " INT64_FORMAT " has not its form", last->seal_no),
				 errhint("outbox.verify_seals() says what was changed.")));
}

bool
close_window(Seal *seal)
{
	Seal before;
	const Seal *last;

	lock_sealers();
	last = last_seal(&before) ? &before : nullptr;
	if (last != nullptr)
		require_form(last);
	make_mark(last);
	*seal = {};
	if (!find_end(last, &seal->to_at))
		return false;
	OUTBOX_STOP_POINT("seal_before_rows");
	complete_seal(seal, last);
	OUTBOX_STOP_POINT("seal_before_store");
	store_seal(seal);
	summarize_leaves();
	return true;
}

// ---- telling of it

void
record_seal(Call *call, const Seal *seal)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::sealed};

	put_field(&detail, "seal_no", psprintf(INT64_FORMAT, seal->seal_no));
	put_field(&detail, "hash", hex_of(seal->hash.bytes, sizeof(seal->hash.bytes)));
	event.detail = end_object(&detail);
	record_event(call, event);
}

// Where no administrator of the database reaches.
void
send_anchor(Call *call, const Seal *seal)
{
	const Queue *queue = hold_queue_if_there(call, cstring_to_text(queue_of_seals), Wait::never);
	Message anchor = {};

	if (queue == nullptr)
		return;
	anchor.is_notice = true;
	anchor.event_type = cstring_to_text("outbox.seal");
	anchor.idempotency_key = cstring_to_text(hex_of(seal->hash.bytes, sizeof(seal->hash.bytes)));
	anchor.payload = exported(seal);
	anchor.headers = empty_object();
	draw_ids(&anchor, 1);
	write_notice(call, queue, &anchor);
}

} // namespace

bool
seal_now(Call *call, Seal *seal)
{
	int level = pin_for_seals();
	MemoryContext caller = CurrentMemoryContext;
	bool sealed;

	SPI_connect();
	sealed = close_window(seal);
	// The rest of it ends with SPI.
	if (sealed)
		seal->parts_json = copied_to(caller, seal->parts_json);
	seal->parts = nullptr;
	seal->part_count = 0;
	SPI_finish();
	AtEOXact_GUC(true, level);
	if (sealed)
	{
		record_seal(call, seal);
		send_anchor(call, seal);
	}
	return sealed;
}

} // namespace outbox
