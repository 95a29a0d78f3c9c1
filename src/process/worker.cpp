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

#include "message/due.h"
#include "message/order.h"
#include "process/maintenance.h"
#include "verbs/repair.h"
#include "upkeep/installed.h"
#include "server/settings.h"
#include "process/step.h"
#include "server/stop_point.h"
#include "commit/transaction.h"
#include "commit/waiters.h"
#include "rows/call.h"

namespace outbox {

namespace {

constexpr int repairs_at_a_time = 200;
// Commits can request a look through all queues no more often than this.
constexpr int64 least_look_pause_us = 50 * 1000;
// A wait must not delay the other steps for long. Producers that notify listeners themselves hold the
// lock on the notification queue until their commit is on disk.
// Until marks of keys are looked at again that could not be settled.
constexpr int64 settle_pause_us = 1000 * 1000;
constexpr char shortest_lock_timeout[] = "1ms";
constexpr char notify_lock_timeout[] = "2s";
constexpr char name_in_ledger[] = "outbox worker";

// A queue as this worker follows it.
struct Watch {
	uint32 generation;      // of its slot
	int64 gathers_until;    // steady clock: the next notification is not sent before
	TimestampTz next_due;   // DT_NOEND = nothing known
	TimestampTz seen_until; // messages due until then have been announced
	int64 listed;           // the last look that found the queue in the table
};

struct Worker {
	DatabaseSlot *slot;
	MemoryContext context; // reset in each round
	Watch *watches;
	Step look;
	Step notify;
	Step repair;
	Step settle;
	Step due;
	TimestampTz next_settle; // of marks of keys
	TimestampTz next_expiry;
	TimestampTz expired_from;  // earlier expiries are left to the safety poll
	TimestampTz unslotted_due; // of queues that have no slot
	int64 next_poll;           // steady clock
	int64 last_look;           // steady clock
	int64 looks;               // through all queues
	int64 told_directly;       // queues without a slot, in this look
	bool left_alone;
	int unrepaired; // in the walk that is going on
	Trouble *rows;  // that could not be repaired
	Finding finding;
};

Worker worker;

// ---- queues

Watch *
watch_of(QueueSlot *queue)
{
	Watch *watch = &worker.watches[slot_number(queue)];
	uint32 generation = pg_atomic_read_u32(&queue->generation);

	if (watch->generation != generation || watch->seen_until == 0)
		*watch = {generation, 0, DT_NOEND, DT_NOBEGIN, worker.looks};
	return watch;
}

template <typename Body>
void
each_queue(const Body &body)
{
	each_slot(MyDatabaseId, [&](QueueSlot *queue) { body(queue, watch_of(queue)); });
}

// ---- notifying

struct Sending {
	QueueSlot *queue;
	TimestampTz woken_at;
};

// Takes the flags that are up, of queues whose last notification is old enough.
List *
take_flags(bool all)
{
	int64 now = steady_us();
	List *taken = NIL;

	each_queue([&](QueueSlot *queue, Watch *watch) {
		Sending *sending;

		if (pg_atomic_read_u32(&queue->wake) == 0 || (!all && now < watch->gathers_until))
			return;
		sending = static_cast<Sending *>(palloc(sizeof(Sending)));
		sending->queue = queue;
		sending->woken_at = static_cast<TimestampTz>(pg_atomic_read_u64(&queue->woken_at));
		watch->gathers_until = now + notify_gather_us();
		// The notification covers all messages that are due now; later commits raise the flag again.
		watch->seen_until = Max(watch->seen_until, GetCurrentTimestamp());
		pg_atomic_exchange_u32(&queue->wake, 0);
		taken = lappend(taken, sending);
	});
	return taken;
}

void
report_notified(int64 count, QueueMask queues)
{
	change_status(&worker.slot->report, [&](ProcessStatus *report) { report->notified += count; });
	wake_waiters(queues);
}

void
count_sent(const List *sent)
{
	TimestampTz now = GetCurrentTimestamp();
	QueueMask queues = 0;
	ListCell *cell;

	foreach (cell, sent)
	{
		const Sending *sending = static_cast<const Sending *>(lfirst(cell));
		int64 delay_us = Max(now - sending->woken_at, 0);

		count(sending->queue, Counter::notified, 1);
		pg_atomic_fetch_add_u64(&sending->queue->wakeup_delay[bucket(wakeup_bounds_us, delay_us)], 1);
		pg_atomic_fetch_add_u64(&sending->queue->wakeup_delay_sum_us, delay_us);
		queues |= mask_of(sending->queue);
	}
	report_notified(list_length(sent), queues);
}

// all: also queues that still gather, because this is the last time.
void
notify_listeners(bool all)
{
	List *taken;
	ListCell *cell;

	if (is_resting(&worker.notify))
		return;
	OUTBOX_STOP_POINT("worker_before_collect");
	taken = take_flags(all);
	// The safety poll finds the messages when outbox.hold ends.
	if (taken == NIL || everything_is_held())
		return;
	OUTBOX_STOP_POINT("worker_before_send");
	if (run_step(&worker.notify, [&] {
			if (has_failed(&worker.notify))
				notification_queue_usage(); // frees what can be freed
			foreach (cell, taken)
				Async_Notify("outbox_pending", static_cast<const Sending *>(lfirst(cell))->queue->name);
		}))
	{
		count_sent(taken);
		return;
	}
	foreach (cell, taken)
		pg_atomic_write_u32(&static_cast<Sending *>(lfirst(cell))->queue->wake, 1);
}

// ---- expired leases

void
row_failed(const core::Uuid &id, const char *why, int sqlstate)
{
	const char *what = psprintf("could not repair the lease of message %s: %s", shown(id), why);
	bool waited = sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;

	worker.unrepaired++;
	set_error(&worker.slot->report, what);
	// Rows of a locked leaf must not each cost the full wait.
	if (waited)
		use_lock_timeout(shortest_lock_timeout);
	else
		begin_trouble(worker.rows, sqlstate, what,
					  "The other messages are not affected. outbox.workers shows how many there are.");
}

void
finish_walk()
{
	change_status(&worker.slot->report, [](ProcessStatus *report) { report->unrepaired = worker.unrepaired; });
	if (worker.unrepaired == 0)
		end_trouble(worker.rows, "has repaired all expired leases again");
}

// One slice of the walk over expired leases; the next one follows at once.
void
repair_leases()
{
	RepairScan scan = {};
	TimestampTz next = DT_NOEND;
	TimestampTz looked_at = 0;
	bool done;

	scan.most = repairs_at_a_time;
	scan.whole_expiries = true;
	scan.from = worker.expired_from;
	scan.cautious = true;
	scan.confine = Confine::all_errors;
	scan.failed = row_failed;
	OUTBOX_STOP_POINT("worker_before_repair");
	done = run_step(&worker.repair, [&] {
		Call call;

		scan.by = cstring_to_text(name_in_ledger);
		begin_call(&call, name_in_ledger);
		if (scan.from == DT_NOBEGIN)
			sweep_leases(&call);
		repair(&call, &scan);
		next = scan.more ? call.now : next_expiry_after(&call, call.now);
		looked_at = call.now;
		end_call(&call);
	});
	if (!done)
	{
		worker.next_expiry = Min(worker.next_expiry, GetCurrentTimestamp());
		return;
	}
	worker.expired_from = scan.more ? scan.from : looked_at;
	worker.next_expiry = next;
	change_status(&worker.slot->report, [&](ProcessStatus *report) { report->repaired += scan.repaired; });
	if (!scan.more)
		finish_walk();
}

// ---- keys that may have to go on

void
set_marked(QueueSlot *slot, uint32 marked)
{
	pg_atomic_exchange_u32(&slot->marked, marked);
}

// all: also where no commit said so. The flag is taken before the look: a commit that comes later raises it again.
void
settle_keys(bool all)
{
	bool more = false;
	bool done;

	take_announced(&worker.slot->settle_at);
	OUTBOX_STOP_POINT("worker_before_settle");
	done = run_step(&worker.settle, [&] {
		ListCell *cell;
		Call call;

		begin_call(&call, name_in_ledger);
		foreach (cell, all_queues(&call))
		{
			const Queue *queue = static_cast<const Queue *>(lfirst(cell));
			QueueSlot *slot = queue_ref(text_to_cstring(queue->name)).slot;

			if (!all && slot != nullptr && pg_atomic_read_u32(&slot->marked) == 0)
				continue;
			if (slot != nullptr)
				set_marked(slot, 0);
			if (!settle_marks(&call, queue))
				continue;
			more = true;
			if (slot != nullptr)
				set_marked(slot, 1);
		}
		end_call(&call);
	});
	if (!done)
		each_slot(MyDatabaseId, [](QueueSlot *slot) { set_marked(slot, 1); });
	worker.next_settle = done && !more ? DT_NOEND : GetCurrentTimestamp() + settle_pause_us;
}

// ---- due messages

// The flag is raised at the end of the transaction, and taken after it.
void
announce_due(const Call *call, const Queue *queue)
{
	if (queue_ref(text_to_cstring(queue->name)).slot != nullptr)
		note_due(queue->name, call->now, call->now);
	else
	{
		Async_Notify("outbox_pending", text_to_cstring(queue->name));
		worker.told_directly++;
	}
}

// Slots of queues that two looks did not find, for example after a rollback, become free.
void
let_go_of_missing()
{
	each_queue([](QueueSlot *slot, Watch *watch) {
		if (watch->listed + 2 <= worker.looks)
			pg_atomic_write_u32(&slot->dropped, 1);
	});
}

// Looks at all queues, also for messages that no commit announced.
void
look_at_all(Call *call)
{
	ListCell *cell;

	worker.unslotted_due = DT_NOEND;
	worker.looks++;
	foreach (cell, all_queues(call))
	{
		const Queue *queue = static_cast<const Queue *>(lfirst(cell));
		QueueSlot *slot = queue_ref(text_to_cstring(queue->name)).slot;
		TimestampTz next = queue->paused ? DT_NOEND : next_due_after(call, queue, call->now);

		CHECK_FOR_INTERRUPTS();
		sweep_due(call, queue);
		if (!queue->paused && has_due(call, queue))
			announce_due(call, queue);
		if (slot == nullptr)
			worker.unslotted_due = Min(worker.unslotted_due, next);
		else
		{
			Watch *watch = watch_of(slot);

			watch->next_due = next;
			watch->seen_until = call->now;
			watch->listed = worker.looks;
		}
	}
	let_go_of_missing();
}

// Looks for messages that have become due since the last look.
void
look_at_due(Call *call)
{
	each_queue([&](QueueSlot *slot, Watch *watch) {
		const Queue *queue;

		if (watch->next_due > call->now)
			return;
		queue = find_queue(call, cstring_to_text(slot->name));
		if (queue == nullptr || queue->paused)
			watch->next_due = DT_NOEND;
		else
		{
			watch->next_due = next_due_after(call, queue, watch->seen_until);
			if (watch->next_due <= call->now)
			{
				announce_due(call, queue);
				watch->next_due = next_due_after(call, queue, call->now);
			}
		}
		watch->seen_until = call->now;
	});
}

void
look_for_due(bool all)
{
	bool told = run_step(&worker.due, [&] {
		Call call;

		worker.told_directly = 0;
		begin_call(&call, name_in_ledger);
		if (all)
			look_at_all(&call);
		else
			look_at_due(&call);
		end_call(&call);
	});

	if (told && worker.told_directly > 0)
		report_notified(worker.told_directly, every_queue);
	if (told && all)
		worker.last_look = steady_us();
	else if (!told)
		announce(&worker.slot->look_at, 0); // all again, after the pause: nothing was announced
}

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
	forget_errors(&worker.slot->report);
	forget_errors(&worker.slot->maintenance);
}

[[noreturn]] void
depart()
{
	// From here on producers notify listeners themselves. Earlier flags are handled here.
	pg_atomic_write_u32(&worker.slot->worker, 0);
	pg_memory_barrier();
	notify_listeners(true);
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
		if (look_at != DT_NOEND)
			us = Min(us, Max(until(&worker.due, look_at, now), worker.last_look + least_look_pause_us - steady));
	}
	each_queue([&](QueueSlot *queue, Watch *watch) {
		if (pg_atomic_read_u32(&queue->wake) != 0)
			us = Min(us, Max(watch->gathers_until, has_failed(&worker.notify) ? worker.notify.retry_at : 0) - steady);
	});
	return Max(us, 0);
}

// What is announced after the first look is found by the second, or its session has seen the end of our
// sleep and sets our latch.
void
sleep_until_needed()
{
	int64 us = time_to_sleep();
	TimestampTz sleeps_until = GetCurrentTimestamp() + us;

	pg_atomic_exchange_u64(&worker.slot->sleeps_until, static_cast<uint64>(sleeps_until));
	OUTBOX_STOP_POINT("worker_before_sleep");
	us = Min(us, time_to_sleep());
	worker.slot->report.next_wake = sleeps_until;
	if (us > 0)
		pgstat_report_activity(STATE_IDLE, "waiting for a commit, a due message or an expired lease");
	if (sleep_process(us))
	{
		worker.next_poll = Min(worker.next_poll, steady_us() + poll_interval_us());
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
	repair_leases();
	settle_keys(true);
	look_for_due(true);
	ask_for_maintenance(worker.slot);
	pgstat_report_stat(true);
	pg_atomic_write_u32(&worker.slot->went_round, 1);
}

void
run_worker_round()
{
	bool look;

	MemoryContextReset(worker.context);
	MemoryContextSwitchTo(worker.context);
	if (pg_atomic_read_u32(&worker.slot->leave) != 0)
		depart();
	notify_listeners(false);
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
	}
	// For messages that the looks found due.
	notify_listeners(false);
	sleep_until_needed();
}

void
leave_worker(int, Datum)
{
	pg_atomic_write_u32(&worker.slot->worker, 0);
	end_status(&worker.slot->report);
	wake_process(pg_atomic_read_u32(&shared->launcher));
}

void
make_steps(ProcessStatus *report)
{
	clear_failures(report);
	worker.look = make_step(report, 0, "look at the database", usual_lock_timeout);
	worker.notify = make_step(report, 1, "notify listeners", notify_lock_timeout);
	worker.repair = make_step(report, 2, "repair expired leases", usual_lock_timeout);
	worker.due = make_step(report, 3, "look for due messages", usual_lock_timeout);
	worker.rows = &report->troubles[4];
	worker.settle = make_step(report, 5, "settle marks of keys", usual_lock_timeout);
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
