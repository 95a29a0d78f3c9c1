// lost_messages, restore_pending: messages that have not ended and are not pending, because their row of outbox.pending
// was deleted with the triggers disabled.
//
// Guarantees: a message that is pending, or has ended, is left alone. Calls exclude one another to the end of their
// transactions, and take their snapshots after that, because messages that an earlier call restored may have been
// delivered since. attempt_count comes from the ledger, sequence_id from the message. In an ordered key a
// message is held back until its mark is settled (order.h).
//
// Shape: one query for each range between two bounds of partitions, so it reads one pair of leaves.

#include "message/audit_event.h"
#include "commit/transaction.h"
#include "message/queue.h"
#include "server/boundary.h"
#include "server/settings.h"
#include "server/spi.h"

namespace outbox {

namespace {

constexpr core::Uuid least_id = {};
constexpr core::Uuid greatest_id = {{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}};

// The bounds, ascending; the greatest id comes last.
List *
bounds_of_partitions()
{
	Relation rel = open_parent(messages_shape.name);
	PartitionBoundInfo bounds = RelationGetPartitionDesc(rel, true)->boundinfo;
	List *result = NIL;

	for (int i = 0; bounds != nullptr && i < bounds->ndatums; i++)
		if (bounds->kind[i][0] == PARTITION_RANGE_DATUM_VALUE)
			result = lappend(result, DatumGetUUIDP(datumCopy(bounds->datums[i][0], false, UUID_LEN)));
	relation_close(rel, AccessShareLock);
	return lappend(result, DatumGetUUIDP(from_uuid(greatest_id)));
}

const char *
lost_between(const char *lower, const char *upper)
{
	return psprintf("SELECT m.outbox_id, m.queue, m.event_type, m.created_at, "
					"(SELECT coalesce(max(a.attempt_no), 0) FROM outbox.attempts a "
					"WHERE a.outbox_id = m.outbox_id AND a.outbox_id >= '%s' AND a.outbox_id < '%s') AS attempts, "
					"m.priority, m.partition_key, m.sequence_id, m.max_attempts "
					"FROM outbox.messages m WHERE m.outbox_id >= '%s' AND m.outbox_id < '%s' "
					"AND NOT EXISTS (SELECT FROM outbox.pending p WHERE p.outbox_id = m.outbox_id) "
					"AND NOT EXISTS (SELECT FROM outbox.attempts a WHERE a.outbox_id = m.outbox_id "
					"AND a.outbox_id >= '%s' AND a.outbox_id < '%s' AND a.state IN ('DISPATCHED', 'FAILED'))",
					lower, upper, lower, upper, lower, upper);
}

// act(query) for each range, under our search_path.
template <typename Act>
void
each_range(const Act &act)
{
	int guc_level = pin_search_path();
	const char *lower = shown(least_id);
	List *bounds = bounds_of_partitions();
	ListCell *cell;

	SPI_connect();
	foreach (cell, bounds)
	{
		const char *upper = shown(to_uuid(UUIDPGetDatum(static_cast<const pg_uuid_t *>(lfirst(cell)))));

		act(lost_between(lower, upper));
		lower = upper;
	}
	SPI_finish();
	AtEOXact_GUC(true, guc_level);
}

void
put_found(FunctionCallInfo fcinfo, const char *query)
{
	constexpr int columns = 5;

	if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not execute: %s", query);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Datum values[columns];
		bool nulls[columns];

		for (int column = 0; column < columns; column++)
			values[column] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, column + 1, &nulls[column]);
		put_result(fcinfo, values, nulls);
	}
}

// fair_key_of(), of a message l and its queue q.
constexpr char fair_key[] =
	"CASE WHEN q.fair_by IS NOT NULL OR q.max_in_flight_per_key IS NOT NULL THEN "
	"(('x' || left(encode(outbox.key_digest(l.queue, ''), 'hex'), 5))::bit(20)::bigint << 43) "
	"+ CASE WHEN l.partition_key IS NULL THEN 0 ELSE greatest(1, "
	"('x' || left(encode(outbox.key_digest(l.queue, l.partition_key), 'hex'), 16))::bit(64)::bigint & 8796093022207) END "
	"+ CASE WHEN q.max_in_flight_per_key IS NULL THEN 0 ELSE '-9223372036854775808'::bigint END END";

void
record_restored(Call *call, const text *queue, int64 count)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::pending_restored, queue};

	put_field(&detail, "messages", static_cast<int32>(Min(count, PG_INT32_MAX)));
	event.detail = end_object(&detail);
	record_event(call, event);
}

// Returns how many. Messages of a queue that was dropped stay as they are.
int64
put_back(Call *call, const char *query)
{
	int64 total = 0;
	uint64 queues =
		run("WITH put AS ("
			"INSERT INTO outbox.pending (outbox_id, queue, priority, partition_key, sequence_id, attempt_count, "
			"max_attempts, next_attempt_at, created_at, held_back, fair_key) "
			"SELECT l.outbox_id, l.queue, l.priority, l.partition_key, l.sequence_id, l.attempts, "
			"l.max_attempts, clock_timestamp(), l.created_at, q.ordering = 'fifo' AND l.sequence_id IS NOT NULL, %s "
			"FROM (%s) l JOIN outbox.queues q ON q.queue = l.queue ON CONFLICT DO NOTHING "
			"RETURNING queue, partition_key, held_back), marked AS ("
			"INSERT INTO outbox.key_marks (mark_id, digest, queue, partition_key, kind, sequence_id, created_at) "
			"SELECT gen_random_uuid(), outbox.key_digest(queue, partition_key), queue, partition_key, 'drained', 0, "
			"clock_timestamp() FROM put WHERE held_back GROUP BY queue, partition_key) "
			"SELECT queue, count(*), bool_or(held_back) FROM put GROUP BY queue",
			fair_key, query);

	for (uint64 i = 0; i < queues; i++)
	{
		bool isnull;
		HeapTuple row = SPI_tuptable->vals[i];

		const text *queue = DatumGetTextPP(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		int64 count;

		note_due(queue, call->now, call->now);
		note_turn(queue, DatumGetBool(SPI_getbinval(row, SPI_tuptable->tupdesc, 3, &isnull)));
		count = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
		record_restored(call, queue, count);
		total += count;
	}
	return total;
}

void
hold_all_queues(Call *call)
{
	ListCell *cell;

	foreach (cell, all_queues(call))
		hold_queue(call, static_cast<const Queue *>(lfirst(cell))->name);
}

} // namespace

OUTBOX_FUNCTION(outbox_lost_messages)
{
	begin_results(fcinfo);
	each_range([&](const char *query) { put_found(fcinfo, query); });
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_restore_pending)
{
	int64 total = 0;
	Table *table;
	Call call;

	if (IsolationUsesXactSnapshot())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("restore_pending() needs a READ COMMITTED transaction"),
						errdetail("With an older snapshot it would restore messages that have been delivered since.")));
	begin_call(&call, "restore_pending()");
	table = pending(&call);
	LockRelation(table->rel, ShareUpdateExclusiveLock);
	hold_all_queues(&call);
	each_range([&](const char *query) { total += put_back(&call, query); });
	end_call(&call);
	PG_RETURN_INT64(total);
}

} // namespace outbox
