// The background worker of one database: notifies listeners, wakes them when something
// falls due, takes back the leases of dead workers, and asks for maintenance.
//
// Guarantees: it sleeps without a transaction, a snapshot or a lock, until a commit wakes it or until
// the next due message, the next lease expiry or the safety poll. Each event that it waits for is
// later than now: rows on which it cannot act (a locked row, a paused queue) are left to the safety
// poll, so the loop cannot spin. Its steps fail independently (step.h).
//
// Shape: commits raise a flag for each queue and lower announced times (transaction.cpp). The worker
// takes them, and publishes the end of its sleep before it looks at them for the last time. A
// session that announces an earlier time sees this and sets the latch. There are full barriers on
// both sides, so one of the two notices the other.

#include "process/handlers.h"
#include "process/maintenance.h"
#include "process/worker_steps.h"
#include "upkeep/installed.h"
#include "server/settings.h"
#include "server/stop_point.h"
#include "commit/notes.h"
#include "commit/transaction.h"

namespace outbox {

namespace {

// Commits can request a look through all queues no more often than this.
constexpr int64 least_look_pause_us = 50 * 1000;

// ---- going round

void
look_at_database()
{
	uint32 looking = static_cast<uint32>(Finding::being_looked_at);
	Finding finding = Finding::absent;
	bool filled = false;

	pg_atomic_exchange_u32(&worker.slot->finding, looking);
	if (!run_step(&worker.look, [&] {
			finding = find_extension();
			filled = finding == Finding::present && is_being_filled();
			if (finding == Finding::present && !filled)
				look_for_upkeep();
		}))
		return;
	worker.finding = finding;
	worker.left_alone = filled;
	// If the extension changed during the scan, scan again.
	pg_atomic_compare_exchange_u32(&worker.slot->finding, &looking, static_cast<uint32>(finding));
	if (filled)
		set_activity(&worker.slot->report, Activity::left_alone);
	else if (worker.slot->report.activity == Activity::left_alone)
		set_activity(&worker.slot->report, Activity::running);
}

// All causes of trouble are gone.
void
forget_extension()
{
	forget_queues(MyDatabaseId);
	forget_refused(&worker.slot->refused);
	forget_errors(&worker.slot->report);
	forget_errors(&worker.slot->maintenance);
	forget_errors(&worker.slot->handler);
}

[[noreturn]] void
depart()
{
	// From here on producers notify listeners themselves. Earlier flags are handled here.
	pg_atomic_write_u32(&worker.slot->worker, 0);
	pg_memory_barrier();
	promise_to_rouse(false);
	notify_listeners(true);
	end_handlers();
	end_maintenance();
	if (worker.finding == Finding::absent)
		forget_extension();
	proc_exit(0);
}

// Takes the announcements of commits. True if all queues need a look.
bool
take_announcements()
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz expiry = take_announced(&worker.slot->expires_at);
	bool look = false;

	if (expiry != DT_NOEND)
	{
		worker.next_expiry = Min(worker.next_expiry, expiry);
		worker.expired_from = Min(worker.expired_from, expiry);
	}
	worker.next_settle = Min(worker.next_settle, announced(&worker.slot->settle_at));
	each_queue([&](QueueSlot *queue, Watch *watch) {
		TimestampTz due;

		if (announced(&queue->due_at) == DT_NOEND)
			return;
		due = take_announced(&queue->due_at);
		watch->next_due = Min(watch->next_due, due);
		watch->seen_until = Min(watch->seen_until, due - 1);
	});
	if (announced(&worker.slot->look_at) <= now && steady_us() >= worker.last_look + least_look_pause_us)
	{
		take_announced(&worker.slot->look_at);
		look = true;
	}
	return look || worker.unslotted_due <= now;
}

// Queues whose rate allows more by now: those that wait are to be told.
void
take_limits()
{
	each_queue([](QueueSlot *queue, Watch *) {
		pg_atomic_uint64 *more_at = &queue->spending.more_at;

		if (announced(more_at) > steady_us())
			return;
		take_announced(more_at);
		raise_flag(queue);
	});
}

// The earliest due time that is known or announced.
TimestampTz
earliest_due()
{
	TimestampTz earliest = worker.unslotted_due;

	each_queue([&](QueueSlot *queue, Watch *watch) {
		earliest = Min(earliest, Min(watch->next_due, announced(&queue->due_at)));
	});
	return earliest;
}

// Microseconds until the next work that no latch announces.
int64
time_to_sleep()
{
	TimestampTz now = GetCurrentTimestamp();
	int64 steady = steady_us();
	TimestampTz look_at = announced(&worker.slot->look_at);
	int64 us = worker.next_poll - steady;

	if (has_failed(&worker.look))
		us = Min(us, worker.look.retry_at - steady);
	if (!worker.left_alone)
	{
		us = Min(us, until(&worker.settle, Min(worker.next_settle, announced(&worker.slot->settle_at)), now));
		us = Min(us, until(&worker.repair, Min(worker.next_expiry, announced(&worker.slot->expires_at)), now));
		us = Min(us, until(&worker.due, earliest_due(), now));
		us = Min(us, seal_in());
		if (look_at != DT_NOEND)
			us = Min(us, Max(until(&worker.due, look_at, now), worker.last_look + least_look_pause_us - steady));
	}
	if (!worker.left_alone && has_refused(&worker.slot->refused))
		us = Min(us, has_failed(&worker.refusals) ? worker.refusals.retry_at - steady : 0);
	each_queue([&](QueueSlot *queue, Watch *watch) {
		if (pg_atomic_read_u32(&queue->wake) != 0)
			us = Min(us, Max(watch->gathers_until, has_failed(&worker.notify) ? worker.notify.retry_at : 0) - steady);
		if (announced(&queue->spending.more_at) != DT_NOEND)
			us = Min(us, announced(&queue->spending.more_at) - steady);
		if (watch->comes)
			us = Min(us, has_failed(&worker.handlers) ? worker.handlers.retry_at - steady : 0);
		if (watch->rouses || pg_atomic_read_u32(&queue->rouse) != 0)
			us = Min(us, has_failed(&worker.rouse) ? worker.rouse.retry_at - steady : 0);
	});
	if (!worker.left_alone)
		us = Min(us, handlers_start_in());
	return Max(us, 0);
}

// What is announced after the first look is found by the second, or its session has seen the end of our
// sleep and sets our latch.
void
sleep_until_needed()
{
	int64 us = time_to_sleep();
	bool held;
	TimestampTz sleeps_until = GetCurrentTimestamp() + us;

	pg_atomic_exchange_u64(&worker.slot->sleeps_until, static_cast<uint64>(sleeps_until));
	OUTBOX_STOP_POINT("worker_before_sleep");
	us = Min(us, time_to_sleep());
	worker.slot->report.next_wake = sleeps_until;
	if (us > 0)
		pgstat_report_activity(STATE_IDLE, "waiting for a commit, a due message or an expired lease");
	held = everything_is_held();
	if (sleep_process(us))
	{
		worker.next_poll =
			Min(worker.next_poll, steady_us() + (held && !everything_is_held() ? 0 : poll_interval_us()));
		hurry_maintenance();
	}
	worker.slot->report.wakeups++;
}

void
poll()
{
	worker.next_poll = steady_us() + poll_interval_us();
	worker.expired_from = DT_NOBEGIN;
	worker.unrepaired = 0;
	look_at_database();
	if (worker.finding != Finding::present)
		depart();
	if (worker.left_alone)
		return;
	// Counts that have become too high: see in_flight.h.
	each_queue([](QueueSlot *slot, Watch *) { forget_in_flight(&slot->in_flight); });
	repair_leases();
	settle_keys(true);
	look_for_due(true);
	ask_for_maintenance(worker.slot);
	pgstat_report_stat(true);
	pg_atomic_write_u32(&worker.slot->went_round, 1);
}

// The flags are taken with the notifications; sessions are woken whether or not these could be sent.
void
tell_of_work()
{
	notify_listeners(false);
	look_for_handlers();
	if (!worker.left_alone)
		start_handlers(worker.slot);
	rouse_sessions();
}

// Whether it finds what it is to wake sessions for.
bool
is_well()
{
	return !worker.left_alone && !has_failed(&worker.look) && !has_failed(&worker.notify) &&
		   !has_failed(&worker.rouse) && !has_failed(&worker.repair) && !has_failed(&worker.settle) &&
		   !has_failed(&worker.due);
}

void
run_worker_round()
{
	bool look;

	MemoryContextReset(worker.context);
	MemoryContextSwitchTo(worker.context);
	if (pg_atomic_read_u32(&worker.slot->leave) != 0)
		depart();
	tell_of_work();
	if (!worker.left_alone)
		record_refusals();
	follow_maintenance(worker.slot);
	look = take_announcements();
	if (look || steady_us() >= worker.next_poll || is_retry_due(&worker.look))
		poll();
	else if (!worker.left_alone)
	{
		TimestampTz now = GetCurrentTimestamp();

		if (worker.next_expiry <= now)
			repair_leases();
		if (worker.next_settle <= now)
			settle_keys(false);
		if (earliest_due() <= now)
			look_for_due(false);
		if (seal_in() == 0)
			ask_for_maintenance(worker.slot);
	}
	take_limits();
	// For messages that the looks found due.
	tell_of_work();
	promise_to_rouse(is_well());
	sleep_until_needed();
}

void
leave_worker(int, Datum)
{
	pg_atomic_write_u32(&worker.slot->worker, 0);
	promise_to_rouse(false);
	end_status(&worker.slot->report);
	wake_process(pg_atomic_read_u32(&shared->launcher));
}

// A second worker for a database, started by a restarted launcher, ends.
void
attach()
{
	worker.slot = database_slot(MyDatabaseId, true);
	if (worker.slot == nullptr || !begin_status(&worker.slot->report))
		proc_exit(0);
	before_shmem_exit(leave_worker, 0);
	make_steps(&worker.slot->report);
	look_at_database();
	if (worker.finding != Finding::present)
		proc_exit(0);
	change_status(&worker.slot->report, [](ProcessStatus *report) { report->starts++; });
	wake_process(pg_atomic_read_u32(&shared->launcher)); // it may look at the next database now
}

void
prepare()
{
	worker.context = AllocSetContextCreate(TopMemoryContext, "outbox worker", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(worker.context);
	worker.next_expiry = worker.next_settle = worker.unslotted_due = DT_NOEND;
	worker.watches = static_cast<Watch *>(
		MemoryContextAllocZero(TopMemoryContext, sizeof(Watch) * static_cast<Size>(shared->queue_slots)));
	// The first round looks at everything: flags of an earlier worker, older rows.
	worker.next_poll = steady_us();
	worker.last_look = steady_us() - least_look_pause_us;
}

} // namespace

OUTBOX_PROCESS(outbox_worker_main)
{
	connect_process(DatumGetObjectId(argument));
	prepare();
	OUTBOX_STOP_POINT("worker_before_attach");
	attach();
	// From here on producers rely on this worker.
	pg_atomic_exchange_u32(&worker.slot->worker, process_number() + 1);
	for (;;)
		run_worker_round();
}

} // namespace outbox
