// The maintenance process of a database: short-lived, so that wake-ups never wait behind
// DDL. What it does is what outbox.maintain() does, by the same code.
//
// Guarantees: each pair of partitions is made, or retired, in a transaction of its own, under a short
// lock_timeout, as the tables' owner in a security-restricted context; a database that is
// being filled by a restore or a subscription is left alone. What it could not do it
// reports; the worker asks again.

#include "process/maintenance.h"

#include "process/process.h"
#include "server/boundary.h"
#include "upkeep/idempotency_window.h"
#include "upkeep/partitions.h"
#include "upkeep/recount.h"
#include "upkeep/policy.h"
#include "upkeep/retention.h"
#include "upkeep/installed.h"
#include "server/settings.h"
#include "process/step.h"
#include "server/stop_point.h"
#include "rows/call.h"

namespace outbox {

namespace {

// ---- the worker's side

constexpr int64 usual_pause_us = 10 * USECS_PER_MINUTE;

BackgroundWorkerHandle *process;
int64 next_at;        // steady clock
int64 old_data_since; // steady clock: when it was dealt with last
int64 old_data_pause_us;
bool lacks_pairs;
bool keeps_data; // a session has enqueued

bool
is_maintaining()
{
	pid_t pid;

	if (process == nullptr)
		return false;
	if (GetBackgroundWorkerPid(process, &pid) != BGWH_STOPPED)
		return true;
	pfree(process);
	process = nullptr;
	return false;
}

} // namespace

void
look_for_upkeep()
{
	bool written = is_in_use();

	lacks_pairs = written && lacks_partitions();
	keeps_data = written;
	// The first look at what is kept for a time comes at once.
	if (old_data_since == 0)
		old_data_since = steady_us() - USECS_PER_MINUTE;
	old_data_pause_us =
		written && (retention_policy().keep_ms != PG_INT64_MAX || idempotency_window_ms() != PG_INT64_MAX)
			? USECS_PER_MINUTE
			: USECS_PER_HOUR;
}

void
ask_for_maintenance(DatabaseSlot *slot)
{
	MemoryContext context;

	// One that has just ended is followed first, which says when the next may start.
	if (process != nullptr || steady_us() < next_at ||
		!(lacks_pairs || lacks_count() || (keeps_data && steady_us() >= old_data_since + old_data_pause_us)))
		return;
	next_at = steady_us() + usual_pause_us;
	old_data_since = steady_us();
	context = MemoryContextSwitchTo(TopMemoryContext);
	process = start_process("maintenance", MyDatabaseId);
	MemoryContextSwitchTo(context);
	if (process != nullptr)
		return;
	next_at = steady_us() + USECS_PER_MINUTE;
	set_error(&slot->maintenance, "no background worker slot is free: increase max_worker_processes");
}

void
hurry_maintenance()
{
	old_data_since = PG_INT64_MIN / 2;
}

void
end_maintenance()
{
	if (!is_maintaining())
		return;
	TerminateBackgroundWorker(process);
	WaitForBackgroundWorkerShutdown(process);
}

void
follow_maintenance(const DatabaseSlot *slot)
{
	int failures = most_failures(&slot->maintenance);

	if (process != nullptr && !is_maintaining())
		next_at = steady_us() + (failures > 0 ? Max(pause_us(failures), USECS_PER_SEC) : 0);
}

namespace {

// ---- the process itself

ProcessStatus *report;

void
leave_maintenance(int, Datum)
{
	end_status(report);
}

// The tasks of the process. Each has its own failures, which outlive a process.
struct Task {
	int trouble; // its place in the report
	const char *could_not;
	const char *has;
	const char *detail; // of the message, or nullptr
};

constexpr Task making = {0, "make partitions", "made partitions",
						 "New messages go to the last partition there is until a later try succeeds."};
constexpr Task retiring = {1, "retire partitions", "retired partitions", nullptr};
constexpr Task counting = {3, "count what the queues hold", "counted what the queues hold", nullptr};
constexpr Task forgetting = {2, "forget keys", "forgotten keys", nullptr};

// The log hears of the first failure, and of the end of the trouble.
void
task_failed(const Task *task, const char *message)
{
	bool first = report->troubles[task->trouble].failures == 0;

	set_error(report, message);
	change_status(report, [&](ProcessStatus *mine) { mine->troubles[task->trouble].failures++; });
	if (first)
		ereport(LOG, (errmsg("outbox maintenance of database \"%s\" could not %s: %s", process_database(),
							 task->could_not, message),
					  task->detail != nullptr ? errdetail_internal("%s", task->detail) : 0));
}

void
task_succeeded(const Task *task)
{
	if (report->troubles[task->trouble].failures == 0)
		return;
	change_status(report, [&](ProcessStatus *mine) { mine->troubles[task->trouble].failures = 0; });
	ereport(LOG, (errmsg("outbox maintenance of database \"%s\" has %s again", process_database(), task->has)));
}

// Whether something was enqueued, before which a restore may be on its way.
enum class InUse { required, not_required };

// Runs body() as the owner, in a transaction of its own.
template <typename Body>
ErrorData *
as_owner(const Body &body, InUse use = InUse::required)
{
	return in_transaction([&] {
		Call call;

		if (find_extension() != Finding::present)
			return;
		// What the rest is said of is not dropped and made again meanwhile.
		relation_close(open_parent(messages_shape.name), NoLock);
		if ((use == InUse::required && !is_in_use()) || is_being_filled())
			return;
		begin_reading(&call);
		body();
		end_reading(&call);
	});
}

// A lock that was not to be had is none: old data can wait.
const char *
fault(const ErrorData *error)
{
	return error == nullptr || is_lock_wait(error) ? nullptr : error->message;
}

// Another session needs exclusive use of the database.
bool
is_to_go_on(DatabaseSlot *slot)
{
	CHECK_FOR_INTERRUPTS();
	return pg_atomic_read_u32(&slot->leave) == 0;
}

// The detail of a pair that is left for later; nullptr when it is well.
const char *
make_pair(int64 *after_ms, bool *more)
{
	MemoryContext context = CurrentMemoryContext;
	const char *left = nullptr;
	ErrorData *error = as_owner([&] {
		MadePair pair = make_next_pair(*after_ms);

		*more = pair.action != nullptr;
		*after_ms = pair.unfinished ? *after_ms : pair.upto_ms;
		if (pair.left && !pair.unfinished)
			left = MemoryContextStrdup(context, pair.detail);
	});

	return error != nullptr ? error->message : left;
}

void
make_pairs(DatabaseSlot *slot)
{
	int64 after_ms = PG_INT64_MIN;
	bool more = true;

	while (more && is_to_go_on(slot))
	{
		const char *left;

		more = false;
		left = make_pair(&after_ms, &more);
		if (left != nullptr)
		{
			task_failed(&making, left);
			return;
		}
	}
	task_succeeded(&making);
}

void
retire_pairs(DatabaseSlot *slot)
{
	MemoryContext context = CurrentMemoryContext;
	int64 after_ms = PG_INT64_MIN;
	bool more = true;
	bool well = true;

	while (more && is_to_go_on(slot))
	{
		const char *trouble = nullptr;
		ErrorData *error;

		more = false;
		error = as_owner([&] {
			RetiredPair pair = retire_next(after_ms);

			after_ms = pair.upto_ms;
			more = pair.action != nullptr;
			if (pair.failed)
				trouble = MemoryContextStrdup(context, psprintf("%s: %s", pair.object, pair.detail));
		});
		more = more && error == nullptr;
		trouble = error != nullptr ? fault(error) : trouble;
		if (trouble != nullptr)
			task_failed(&retiring, trouble);
		well = well && trouble == nullptr;
	}
	if (well)
		task_succeeded(&retiring);
}

void
forget_lapsed_keys(DatabaseSlot *slot)
{
	const char *trouble = nullptr;
	KeyWalk walk = {};
	bool more = true;

	while (more && is_to_go_on(slot))
	{
		ErrorData *error;

		more = false;
		error = as_owner([&] { more = forget_keys(&walk, 16 * blocks_at_a_time); });
		more = more && error == nullptr;
		trouble = fault(error);
	}
	if (trouble != nullptr)
		task_failed(&forgetting, trouble);
	else
		task_succeeded(&forgetting);
}

void
count_again()
{
	ErrorData *error = as_owner(count_queues, InUse::not_required);
	const char *trouble = fault(error);

	if (trouble != nullptr)
		task_failed(&counting, trouble);
	else if (error == nullptr)
		task_succeeded(&counting);
}

} // namespace

OUTBOX_PROCESS(outbox_maintenance_main)
{
	DatabaseSlot *slot;

	connect_process(DatumGetObjectId(argument));
	slot = database_slot(MyDatabaseId, false);
	if (slot == nullptr || !begin_status(&slot->maintenance))
		proc_exit(0);
	report = &slot->maintenance;
	change_status(report, [](ProcessStatus *mine) { mine->starts++; });
	before_shmem_exit(leave_maintenance, 0);
	OUTBOX_STOP_POINT("maintenance_before_work");
	pgstat_report_activity(STATE_RUNNING, "making partitions");
	make_pairs(slot);
	pgstat_report_activity(STATE_RUNNING, "retiring old data");
	retire_pairs(slot);
	forget_lapsed_keys(slot);
	pgstat_report_activity(STATE_RUNNING, "counting what the queues hold");
	count_again();
	proc_exit(0);
}

} // namespace outbox
