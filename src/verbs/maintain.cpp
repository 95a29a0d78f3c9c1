// maintain: one pass of upkeep, for servers without a background worker.
//
// Guarantees: the parts of a pass are independent. What a part cannot do now is reported and left for
// a later pass, and the other parts continue. Repairs and notifications, for which workers wait,
// come before parts that take strong locks. Runs as the owner (SECURITY DEFINER), with a short
// lock_timeout.

#include "server/args.h"
#include "upkeep/installed.h"
#include "server/boundary.h"
#include "message/audit_event.h"
#include "message/due.h"
#include "message/order.h"
#include "commit/entries.h"
#include "upkeep/idempotency_window.h"
#include "upkeep/partitions.h"
#include "rows/probe.h"
#include "verbs/handle.h"
#include "verbs/repair.h"
#include "upkeep/policy.h"
#include "upkeep/retention.h"
#include "verbs/retire.h"
#include "server/settings.h"
#include "server/spi.h"
#include "commit/transaction.h"

namespace outbox {

namespace {

constexpr int repairs_at_a_time = 1000;
// Each takes some fifty locks, to the end of the transaction.
constexpr int pairs_at_a_time = 10;
constexpr uint64 keys_at_a_time = 100000;
constexpr int handled_at_a_time = 100;

void
tell(FunctionCallInfo fcinfo, const char *action, const char *object, const char *detail)
{
	Datum values[3] = {CStringGetTextDatum(action), CStringGetTextDatum(object), CStringGetTextDatum(detail)};
	bool nulls[3] = {};

	put_result(fcinfo, values, nulls);
}

void
repair_all(FunctionCallInfo fcinfo)
{
	RepairScan scan = {};
	int total = 0;
	Call call;

	scan.most = repairs_at_a_time;
	scan.whole_expiries = true;
	scan.by = cstring_to_text("outbox maintain");
	scan.from = DT_NOBEGIN;
	do
	{
		begin_call(&call, "maintain()");
		repair(&call, &scan);
		end_call(&call);
		total += scan.repaired;
	} while (scan.more);
	if (total > 0)
		tell(fcinfo, "leases repaired", "outbox.pending", psprintf("%d", total));
}

void
settle_all_marks()
{
	ListCell *cell;
	Call call;

	begin_call(&call, "maintain()");
	foreach (cell, all_queues(&call))
		settle_marks(&call, static_cast<const Queue *>(lfirst(cell)), true);
	end_call(&call);
}

void
notify_claimable(FunctionCallInfo fcinfo)
{
	ListCell *cell;
	Call call;

	begin_call(&call, "maintain()");
	foreach (cell, all_queues(&call))
	{
		const Queue *queue = static_cast<const Queue *>(lfirst(cell));

		if (queue->paused || queue->handler != nullptr || !has_due(&call, queue))
			continue;
		note_due(queue->name, call.now, call.now);
		tell(fcinfo, "notified", text_to_cstring(queue->name), "it has claimable messages");
	}
	end_call(&call);
}

// Returns how many messages it leased.
int
handle_queue(FunctionCallInfo fcinfo, const char *queue, int most)
{
	int counts[] = {0, 0, 0, 0};
	HandlerBatch batch;

	lease_batch(&batch, queue, most, CurrentMemoryContext);
	while (!is_over(&batch))
	{
		Handled handled = handle_next_within(&batch);

		counts[static_cast<int>(handled.handling)]++;
		if (handled.handling != Handling::unable)
			continue;
		tell(fcinfo, "messages left for later", queue, handled.error->message);
		return_batch(&batch);
	}
	if (counts[static_cast<int>(Handling::handled)] > 0)
		tell(fcinfo, "messages handled", queue, psprintf("%d", counts[static_cast<int>(Handling::handled)]));
	if (counts[static_cast<int>(Handling::failed)] > 0)
		tell(fcinfo, "handler failed", queue, psprintf("%d", counts[static_cast<int>(Handling::failed)]));
	return batch.count;
}

// Where no process does it; and not for a handler that calls this. What a transaction in a stricter isolation level
// sees is not what handlers are to see.
void
handle_messages(FunctionCallInfo fcinfo)
{
	int left = handled_at_a_time;
	ListCell *cell;

	if ((is_alive(my_database()) && handler_workers() > 0) || InSecurityRestrictedOperation())
		return;
	foreach (cell, queues_to_handle(CurrentMemoryContext))
	{
		const HandledQueue *queue = static_cast<const HandledQueue *>(lfirst(cell));
		const char *reason = queue->error != nullptr       ? queue->error->message
							 : IsolationUsesXactSnapshot() ? "call maintain() in a READ COMMITTED transaction"
														   : nullptr;

		if (reason != nullptr)
			tell(fcinfo, "messages left for later", queue->name, reason);
		else if (left > 0)
			left -= handle_queue(fcinfo, queue->name, left);
	}
}

void
make_partitions(FunctionCallInfo fcinfo)
{
	make_pairs(InOneTransaction::yes, [&](int64 after_ms) {
		MadePair pair = make_next_pair(after_ms);

		if (pair.action != nullptr)
			tell(fcinfo, pair.action, pair.object, pair.detail);
		return pair;
	});
}

// Why old data is left alone, or nullptr.
const char *
why_not_now()
{
	if (IsolationUsesXactSnapshot())
		return "call maintain() in a READ COMMITTED transaction";
	return is_being_filled() ? "a restore or a subscription fills the tables" : nullptr;
}

void
retire_old(FunctionCallInfo fcinfo)
{
	RetiredPair pair = {};
	int64 after_ms = PG_INT64_MIN;

	for (int retired = 0; retired < pairs_at_a_time; after_ms = pair.upto_ms)
	{
		pair = retire_and_record(after_ms);
		if (pair.action == nullptr)
			break;
		retired += pair.retired;
		tell(fcinfo, pair.action, pair.object, pair.detail);
	}
}

void
forget_old_keys(FunctionCallInfo fcinfo)
{
	KeyWalk walk = {};

	while (walk.forgotten < keys_at_a_time && forget_keys(&walk, 2 * blocks_at_a_time))
		CHECK_FOR_INTERRUPTS();
	if (walk.forgotten > 0)
		tell(fcinfo, "keys forgotten", "outbox.idempotency_keys", psprintf(UINT64_FORMAT, walk.forgotten));
}

// A failure is reported and stops no other part.
template <typename Body>
void
confine(FunctionCallInfo fcinfo, const char *action, const char *object, const Body &body)
{
	ErrorData *error = in_subtransaction([&] { body(); });

	if (error != nullptr)
		tell(fcinfo, action, object, error->message);
}

void
deal_with_old_data(FunctionCallInfo fcinfo)
{
	const char *reason;

	if (retention_policy().keep_ms == PG_INT64_MAX && idempotency_window_ms() == PG_INT64_MAX)
		return;
	reason = why_not_now();
	if (reason != nullptr)
	{
		tell(fcinfo, "old data left for later", "outbox.messages", reason);
		return;
	}
	retire_old(fcinfo);
	confine(fcinfo, "keys left for later", "outbox.idempotency_keys", [&] { forget_old_keys(fcinfo); });
}

// An interval of fixed length, as a literal; NULL = without limit.
const char *
period(FunctionCallInfo fcinfo, int i, const char *name)
{
	constexpr int most_days = 3653;
	const Interval *interval = PG_ARGISNULL(i) ? nullptr : PG_GETARG_INTERVAL_P(i);
	auto is_beyond = [](int64 days) { return days < -most_days || days > most_days; };

	if (interval == nullptr)
		return "NULL";
	if (interval->month != 0 || is_beyond(interval->day) || is_beyond(interval->time / USECS_PER_DAY) ||
		interval->day * USECS_PER_DAY + interval->time < USECS_PER_HOUR ||
		interval->day * USECS_PER_DAY + interval->time > most_days * USECS_PER_DAY)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be between 1 hour and %d days, not %s", name, most_days,
							   DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(i)))),
						interval->month != 0 ? errhint("Months and years have no fixed length: give days.") : 0));
	return psprintf("'%d days " INT64_FORMAT " us'", interval->day, interval->time);
}

const char *
schema_name(FunctionCallInfo fcinfo, int i)
{
	const char *name = PG_ARGISNULL(i) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(i));

	if (name == nullptr)
		return "NULL";
	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("archive_schema must be a name of 1 to %d bytes, not \"%s\"", NAMEDATALEN - 1, name)));
	return quote_literal_cstr(name);
}

// nullptr: none was set yet.
Jsonb *
retention_set()
{
	const char *json = ask("SELECT to_jsonb(r) - 'one' FROM outbox.retention r");

	return json != nullptr ? DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json))) : nullptr;
}

void
record_retention(Jsonb *was, Jsonb *becomes)
{
	JsonObject detail;
	AuditEvent event = {Audited::retention_set};
	Call call;

	begin_call(&call, "set_retention()");
	detail = begin_object();
	if (was != nullptr)
		put_field(&detail, "old", was);
	put_field(&detail, "new", becomes);
	event.detail = end_object(&detail);
	record_event(&call, event);
	end_call(&call);
}

} // namespace

OUTBOX_FUNCTION(outbox_set_retention)
{
	const char *keep = period(fcinfo, 0, "keep");
	const char *dead_letters = period(fcinfo, 1, "dead_letters");
	const char *archive = schema_name(fcinfo, 2);
	Jsonb *was;

	PreventCommandIfReadOnly("set_retention()");
	SPI_connect();
	was = retention_set();
	run("INSERT INTO outbox.retention VALUES (true, %s, %s, %s) ON CONFLICT (one) DO UPDATE "
		"SET keep = excluded.keep, dead_letters = excluded.dead_letters, archive_schema = excluded.archive_schema",
		keep, dead_letters, archive);
	record_retention(was, retention_set());
	SPI_finish();
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_maintain)
{
	PreventCommandIfReadOnly("maintain()");
	begin_results(fcinfo);
	lower_all_floors();
	confine(fcinfo, "repair left for later", "outbox.pending", [&] { repair_all(fcinfo); });
	confine(fcinfo, "ordered keys left for later", "outbox.key_marks", [&] { settle_all_marks(); });
	confine(fcinfo, "notification left for later", "outbox.pending", [&] { notify_claimable(fcinfo); });
	confine(fcinfo, "messages left for later", "outbox.pending", [&] { handle_messages(fcinfo); });
	confine(fcinfo, "partitions left for later", "outbox.messages", [&] { make_partitions(fcinfo); });
	confine(fcinfo, "old data left for later", "outbox.messages", [&] { deal_with_old_data(fcinfo); });
	return static_cast<Datum>(0);
}

} // namespace outbox
