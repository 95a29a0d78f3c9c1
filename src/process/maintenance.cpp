// The maintenance process of a database: it does what outbox.maintain() does, by the same code, and ends.
//
// Guarantees: each pair of partitions is made, or retired, in a separate transaction, under a short
// lock_timeout, as the tables' owner in a security-restricted context. A database that a restore or a
// subscription is filling is left alone. Failures are reported, and the worker asks again.
// When it is asked to end (SIGTERM, or a command that needs exclusive use of the database), it undoes what it is
// doing and ends without a message.
//
// Shape: it is a process of its own because wake-ups and repairs of the worker must not wait for it. With a
// million messages (313 MB and 73 MB of attempts, all in shared_buffers) a VALIDATE of the DEFAULT partitions
// took 0.3 to 0.5 seconds, and the retirement of a pair 2 seconds, on two busy cores. Both grow with the
// partition, and with reads from disk.

#include "process/maintenance.h"

#include "commit/record_floor.h"
#include "process/process.h"
#include "server/boundary.h"
#include "upkeep/idempotency_window.h"
#include "upkeep/partitions.h"
#include "upkeep/recount.h"
#include "upkeep/policy.h"
#include "upkeep/retention.h"
#include "verbs/retire.h"
#include "upkeep/installed.h"
#include "server/settings.h"
#include "process/step.h"
#include "server/stop_point.h"
#include "server/time_limit.h"
#include "rows/call.h"
#include "seals/closing.h"

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
int64 sealed_at; // steady clock: when the process was started to seal last

bool
is_to_seal()
{
	return seal_interval_us() > 0 && steady_us() >= sealed_at + seal_interval_us();
}

bool
has_old_work()
{
	return lacks_pairs || lacks_count() || (keeps_data && steady_us() >= old_data_since + old_data_pause_us);
}

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

	share_floor();
	lacks_pairs = written && lacks_partitions();
	keeps_data = written;
	// The first run for old data comes at once.
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
	bool old_work = has_old_work();
	MemoryContext context;

	// For a process that has just ended, follow_maintenance() decides first when the next may start.
	if (process != nullptr || steady_us() < next_at || !(old_work || is_to_seal()))
		return;
	next_at = steady_us() + usual_pause_us;
	if (is_to_seal())
		sealed_at = steady_us();
	if (old_work)
		old_data_since = steady_us();
	pg_atomic_write_u32(&slot->only_seals, !old_work);
	context = MemoryContextSwitchTo(TopMemoryContext);
	process = start_process("maintenance", MyDatabaseId);
	MemoryContextSwitchTo(context);
	if (process != nullptr)
		return;
	next_at = steady_us() + USECS_PER_MINUTE;
	note_shortage();
	set_error(&slot->maintenance, "no background worker slot is free: increase max_worker_processes");
}

int64
seal_in()
{
	if (process != nullptr || seal_interval_us() == 0)
		return PG_INT64_MAX;
	return Max(Max(next_at, sealed_at + seal_interval_us()) - steady_us(), 0);
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

DatabaseSlot *slot_in_use;
ProcessStatus *report;

void
leave_maintenance(int, Datum)
{
	end_status(report);
}

void
end_if_asked()
{
	forget_cancel(); // for a transaction that was over before
	if (is_asked_to_end() || pg_atomic_read_u32(&slot_in_use->leave) != 0)
		proc_exit(0);
}

void
end_if_dropped()
{
	bool dropped = false;

	in_transaction([&] { dropped = find_extension() == Finding::absent; });
	if (dropped)
		proc_exit(0);
}

// trouble: what failed, or nullptr.
void
end_task(Step *task, const char *trouble, const char *detail = nullptr)
{
	if (trouble != nullptr)
		step_failed(task, 0, trouble, detail);
	else
		step_succeeded(task);
}

// Whether the work requires that something was enqueued: before that, a restore may be running.
enum class InUse { required, not_required };

// Runs body() as the owner, in a separate transaction.
template <typename Body>
ErrorData *
as_owner(const Body &body, InUse use = InUse::required)
{
	ErrorData *error;

	end_if_asked();
	// For event triggers of users.
	begin_time_limit(no_time_limit, true);
	error = in_transaction([&] {
		Call call;

		OUTBOX_STOP_POINT("maintenance_before_work");
		if (is_asked_to_end() || find_extension() != Finding::present)
			return;
		// Keeps the extension from being dropped and created again meanwhile.
		relation_close(open_parent(messages_shape.name), NoLock);
		if ((use == InUse::required && !is_in_use()) || is_being_filled())
			return;
		begin_reading(&call);
		body();
		end_reading(&call);
	});
	end_time_limit();
	if (error != nullptr)
		end_if_dropped();
	end_if_asked();
	return error;
}

// A lock that is not available is no trouble: old data can wait.
const char *
fault(const ErrorData *error)
{
	return error == nullptr || is_lock_wait(error) ? nullptr : error->message;
}

MadePair
make_pair_as_owner(int64 after_ms)
{
	MemoryContext context = CurrentMemoryContext;
	MadePair pair = {};
	ErrorData *error;

	error = as_owner([&] {
		pair = make_next_pair(after_ms);
		if (pair.action != nullptr)
			pair.detail = MemoryContextStrdup(context, pair.detail);
	});
	if (error != nullptr)
		pair = {"partition left for later", nullptr, error->message, true, false, after_ms};
	return pair;
}

void
make_missing_pairs()
{
	Step making = make_step(report, 0, "make partitions", usual_lock_timeout);
	MadePair last;

	begin_step(&making);
	last = make_pairs(InOneTransaction::no, make_pair_as_owner);
	// The first time, who stands in the way may be making or dropping the extension.
	if (last.left && !has_failed(&making))
		step_delayed(&making);
	else
		end_task(&making, last.left ? last.detail : nullptr,
				 "New messages go to the last partition there is until a later try succeeds.");
}

void
retire_pairs()
{
	Step retiring = make_step(report, 1, "retire partitions", usual_lock_timeout);
	MemoryContext context = CurrentMemoryContext;
	const char *trouble = nullptr;
	int64 after_ms = PG_INT64_MIN;
	bool more = true;

	begin_step(&retiring);
	while (more)
	{
		ErrorData *error;

		more = false;
		error = as_owner([&] {
			RetiredPair pair = retire_and_record(after_ms);

			after_ms = pair.upto_ms;
			more = pair.action != nullptr;
			if (pair.failed)
				trouble = MemoryContextStrdup(context, psprintf("%s: %s", pair.object, pair.detail));
		});
		more = more && error == nullptr;
		if (fault(error) != nullptr)
			trouble = fault(error);
	}
	end_task(&retiring, trouble);
}

void
forget_lapsed_keys()
{
	Step forgetting = make_step(report, 2, "delete keys", usual_lock_timeout);
	const char *trouble = nullptr;
	KeyWalk walk = {};
	bool more = true;

	begin_step(&forgetting);
	while (more)
	{
		ErrorData *error;

		more = false;
		error = as_owner([&] { more = forget_keys(&walk, 16 * blocks_at_a_time); });
		more = more && error == nullptr;
		trouble = fault(error);
	}
	end_task(&forgetting, trouble);
}

void
count_again()
{
	Step counting = make_step(report, 3, "count what the queues hold", usual_lock_timeout);
	ErrorData *error;

	begin_step(&counting);
	error = as_owner(count_queues, InUse::not_required);
	if (error == nullptr || !is_lock_wait(error))
		end_task(&counting, fault(error));
}

void
seal_windows()
{
	Step sealing = make_step(report, 4, "seal", usual_lock_timeout);
	ErrorData *error;

	if (seal_interval_us() == 0)
		return;
	begin_step(&sealing);
	error = as_owner(
		[] {
			Call call;
			Seal seal;

			if (!is_no_restore())
				return;
			begin_call(&call, "seal()");
			seal_now(&call, &seal);
			end_call(&call);
		},
		InUse::not_required);
	if (error == nullptr || !is_lock_wait(error))
		end_task(&sealing, fault(error));
}

} // namespace

OUTBOX_PROCESS(outbox_maintenance_main)
{
	OUTBOX_STOP_POINT("maintenance_before_connect");
	connect_or_end(DatumGetObjectId(argument));
	slot_in_use = database_slot(MyDatabaseId, false);
	if (slot_in_use == nullptr || !begin_status(&slot_in_use->maintenance))
		proc_exit(0);
	report = &slot_in_use->maintenance;
	change_status(report, [](ProcessStatus *mine) { mine->starts++; });
	before_shmem_exit(leave_maintenance, 0);
	seal_windows();
	if (pg_atomic_read_u32(&slot_in_use->only_seals) != 0)
		proc_exit(0);
	make_missing_pairs();
	retire_pairs();
	forget_lapsed_keys();
	count_again();
	proc_exit(0);
}

} // namespace outbox
