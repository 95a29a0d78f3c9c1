// Counters, and the status of the background processes: the functions of the views outbox.stats and
// outbox.workers.
//
// Guarantees: reading takes one shared lock and waits for nothing else. Without shared memory there
// are no counters, and outbox.workers shows that the library is not loaded. Counters only grow, until
// all counters of a queue are reset together.

#include "server/args.h"
#include "commit/process_status.h"
#include "server/boundary.h"
#include "server/settings.h"

namespace outbox {

namespace {

// Columns of the results.
constexpr int queue_columns = counters + 5;
constexpr int process_columns = 15;

template <size_t n>
Datum
histogram(pg_atomic_uint64 (&buckets)[n])
{
	Datum items[n];

	for (size_t i = 0; i < n; i++)
		items[i] = Int64GetDatum(static_cast<int64>(pg_atomic_read_u64(&buckets[i])));
	return PointerGetDatum(construct_array(items, static_cast<int>(n), INT8OID, sizeof(int64), true, TYPALIGN_DOUBLE));
}

void
put_queue(FunctionCallInfo result, QueueSlot *slot)
{
	Datum values[queue_columns];
	bool nulls[queue_columns] = {};
	int n = 0;

	values[n++] = CStringGetTextDatum(slot->name);
	for (pg_atomic_uint64 &counter : slot->counts)
		values[n++] = Int64GetDatum(static_cast<int64>(pg_atomic_read_u64(&counter)));
	values[n++] = histogram(slot->latency);
	values[n++] = Int64GetDatum(static_cast<int64>(pg_atomic_read_u64(&slot->wakeup_delay_sum_us)));
	values[n++] = histogram(slot->wakeup_delay);
	values[n++] = TimestampTzGetDatum(slot->reset_at);
	put_result(result, values, nulls);
}

// In the order of Activity.
constexpr const char *activity_names[] = {"stopped",    "off",       "running", "waiting for a lock",
										  "in trouble", "left alone"};

const char *
activity_name(Activity activity)
{
	return activity_names[static_cast<int>(activity)];
}

// A message of another database may be in another encoding.
Datum
error_text(const ProcessStatus *report, Oid database)
{
	char *copy = pstrdup(report->error);

	for (char *c = copy; database != MyDatabaseId && *c != '\0'; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return CStringGetTextDatum(copy);
}

void
put_process(FunctionCallInfo result, const char *kind, Oid database, const ProcessStatus *report, const char *state)
{
	const char *name = OidIsValid(database) ? get_database_name(database) : nullptr;
	Datum values[process_columns];
	bool nulls[process_columns] = {};
	int n = 0;
	auto put = [&](Datum value, bool isnull) {
		nulls[n] = isnull;
		values[n++] = value;
	};

	put(CStringGetTextDatum(kind), false);
	put(name != nullptr ? CStringGetTextDatum(name) : 0, name == nullptr);
	put(Int32GetDatum(report->pid), report->pid == 0);
	put(CStringGetTextDatum(state), false);
	put(TimestampTzGetDatum(report->since), report->since == 0);
	put(TimestampTzGetDatum(report->next_wake), report->next_wake == 0);
	put(error_text(report, database), report->error_at == 0);
	put(TimestampTzGetDatum(report->error_at), report->error_at == 0);
	put(Int32GetDatum(most_failures(report)), false);
	for (int64 number :
		 {report->starts, report->wakeups, report->notified, report->repaired, report->unrepaired, report->unrecorded})
		put(Int64GetDatum(number), false);
	put_result(result, values, nulls);
}

// Copied under the lock, because putting results may wait and fail.
struct Seen {
	Oid database;
	Finding finding;
	bool unstarted;
	ProcessStatus worker;
	ProcessStatus maintenance;
	ProcessStatus handler;
};

List *
seen_databases()
{
	List *seen = NIL;

	for (int i = 0; i < database_slots; i++)
	{
		DatabaseSlot *slot = &shared->databases[i];
		Seen *copy = static_cast<Seen *>(palloc(sizeof(Seen)));
		bool shown = false;

		LWLockAcquire(shared->lock, LW_SHARED);
		if (OidIsValid(slot->database) &&
			(slot->report.pid != 0 || slot->report.error_at != 0 || finding_of(slot) == Finding::present ||
			 finding_of(slot) == Finding::other_version || pg_atomic_read_u32(&slot->unstarted) != 0))
		{
			shown = true;
			copy->database = slot->database;
			copy->finding = finding_of(slot);
			copy->unstarted = pg_atomic_read_u32(&slot->unstarted) != 0;
			copy->worker = slot->report;
			copy->maintenance = slot->maintenance;
			copy->handler = slot->handler;
			copy->worker.unrecorded = refused_without_place(&slot->refused);
		}
		LWLockRelease(shared->lock);
		if (shown)
			seen = lappend(seen, copy);
	}
	return seen;
}

// If none runs, the reason, if it is known.
const char *
worker_state(const Seen *seen)
{
	const char *name = get_database_name(seen->database);

	if (seen->worker.activity != Activity::stopped)
		return activity_name(seen->worker.activity);
	if (name != nullptr && !is_wanted_database(name))
		return "not wanted";
	if (seen->finding == Finding::other_version)
		return "other version";
	return seen->unstarted ? "no free slot" : "stopped";
}

// Also of handlers.
const char *
maintenance_state(const ProcessStatus *report)
{
	if (report->pid != 0)
		return "running";
	return most_failures(report) > 0 ? "in trouble" : "idle";
}

void
put_launcher(FunctionCallInfo result)
{
	ProcessStatus report = {};

	if (shared == nullptr)
	{
		put_process(result, "launcher", InvalidOid, &report, "not loaded");
		return;
	}
	LWLockAcquire(shared->lock, LW_SHARED);
	report = shared->report;
	LWLockRelease(shared->lock);
	put_process(result, "launcher", InvalidOid, &report,
				report.pid == 0 ? "not running" : activity_name(report.activity));
}

} // namespace

OUTBOX_FUNCTION(outbox_worker_status)
{
	ListCell *cell;

	begin_results(fcinfo, process_columns);
	put_launcher(fcinfo);
	if (shared == nullptr)
		return static_cast<Datum>(0);
	foreach (cell, seen_databases())
	{
		const Seen *seen = static_cast<const Seen *>(lfirst(cell));

		put_process(fcinfo, "worker", seen->database, &seen->worker, worker_state(seen));
		put_process(fcinfo, "maintenance", seen->database, &seen->maintenance, maintenance_state(&seen->maintenance));
		if (seen->handler.starts > 0 || seen->handler.error_at != 0)
			put_process(fcinfo, "handler", seen->database, &seen->handler, maintenance_state(&seen->handler));
	}
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_queue_stats)
{
	begin_results(fcinfo, queue_columns);
	each_slot(MyDatabaseId, [&](QueueSlot *slot) {
		if (!is_dropped(slot))
			put_queue(fcinfo, slot);
	});
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_reset_stats)
{
	TimestampTz now = GetCurrentTimestamp();

	each_slot(MyDatabaseId, [&](QueueSlot *slot) { reset_counts(slot, now); });
	PG_RETURN_VOID();
}

} // namespace outbox
