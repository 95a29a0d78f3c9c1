// See worker_steps.h.

#include "process/worker_steps.h"

#include "process/handlers.h"
#include "message/due.h"
#include "message/grant.h"
#include "message/order.h"
#include "message/refusals.h"
#include "verbs/repair.h"
#include "server/settings.h"
#include "server/stop_point.h"
#include "commit/transaction.h"
#include "commit/waiters.h"
#include "rows/call.h"

namespace outbox {

Worker worker;

namespace {

constexpr int repairs_at_a_time = 200;
// Marks of keys that could not be settled are looked at again after this pause.
constexpr int64 settle_pause_us = 1000 * 1000;
// A wait must not delay the other steps for long. Producers that notify listeners themselves hold the
// lock on the notification queue until their commit is on disk.
constexpr char shortest_lock_timeout[] = "1ms";
constexpr char notify_lock_timeout[] = "2s";
constexpr char name_in_ledger[] = "outbox worker";

} // namespace

Watch *
watch_of(QueueSlot *queue)
{
	Watch *watch = &worker.watches[slot_number(queue)];
	uint32 generation = pg_atomic_read_u32(&queue->generation);

	if (watch->generation != generation || watch->seen_until == 0)
		*watch = {generation, 0, DT_NOEND, DT_NOBEGIN, worker.looks, false, false, false, false, false, 0};
	return watch;
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
	worker.handlers = make_step(report, 7, "look for handlers", usual_lock_timeout);
	worker.refusals = make_step(report, 8, "record refused reports", usual_lock_timeout);
	worker.rouse = make_step(report, 6, "wake waiting sessions", usual_lock_timeout);
}

// ---- notifying

namespace {

// Whether it has a handler.
bool
knows_handler(QueueSlot *slot, const Watch *watch)
{
	return watch->known && watch->altered == pg_atomic_read_u32(&slot->altered);
}

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
		watch->rouses = watch->comes = true;
		// No other worker may claim it.
		if (!knows_handler(queue, watch) || !watch->has_handler)
			taken = lappend(taken, sending);
	});
	return taken;
}

void
report_notified(int64 count)
{
	change_status(&worker.slot->report, [&](ProcessStatus *report) { report->notified += count; });
}

void
count_sent(const List *sent)
{
	TimestampTz now = GetCurrentTimestamp();
	ListCell *cell;

	foreach (cell, sent)
	{
		const Sending *sending = static_cast<const Sending *>(lfirst(cell));
		int64 delay_us = Max(now - sending->woken_at, 0);

		count(sending->queue, Counter::notified, 1);
		pg_atomic_fetch_add_u64(&sending->queue->wakeup_delay[bucket(wakeup_bounds_us, delay_us)], 1);
		pg_atomic_fetch_add_u64(&sending->queue->wakeup_delay_sum_us, delay_us);
	}
	report_notified(list_length(sent));
}

} // namespace

void
notify_listeners(bool all)
{
	List *taken;
	ListCell *cell;

	if (is_resting(&worker.notify))
		return;
	OUTBOX_STOP_POINT("worker_before_collect");
	taken = take_flags(all);
	// A poll finds the messages when outbox.hold ends.
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

// ---- handlers

namespace {

// What was altered is read first: a later change is noticed. What is not there yet may have one: a restore
// fills pending before queues, of which no note comes.
void
learn(Call *call, QueueSlot *slot, Watch *watch)
{
	const Queue *queue;

	watch->altered = pg_atomic_read_u32(&slot->altered);
	queue = find_queue(call, cstring_to_text(slot->name));
	watch->has_handler = queue != nullptr && queue->handler != nullptr;
	watch->known = queue != nullptr;
}

} // namespace

void
look_for_handlers()
{
	bool unknown = false;

	each_queue([&](QueueSlot *slot, Watch *watch) { unknown |= watch->comes && !knows_handler(slot, watch); });
	if (unknown && !run_step(&worker.handlers, [] {
			Call call;

			begin_call(&call, name_in_ledger);
			each_queue([&](QueueSlot *slot, Watch *watch) {
				if (watch->comes && !knows_handler(slot, watch))
					learn(&call, slot, watch);
			});
			end_call(&call);
		}))
		return;
	each_queue([](QueueSlot *, Watch *watch) {
		if (watch->comes && watch->has_handler)
			want_handlers();
		watch->comes = false;
	});
}

// ---- waking sessions

namespace {

// Beyond that all who wait are woken: they would get many messages each.
constexpr int64 most_counted_for_sessions = 5000;

bool
shares_bit(const QueueSlot *queue)
{
	bool shares = false;

	each_slot(MyDatabaseId,
			  [&](const QueueSlot *other) { shares |= other != queue && mask_of(other) == mask_of(queue); });
	return shares;
}

void
rouse_for(Call *call, QueueSlot *slot, bool afresh)
{
	QueueMask mask = mask_of(slot);
	const Queue *queue = find_queue(call, cstring_to_text(slot->name));
	Sleepers sleepers;
	int count;

	do
	{
		CHECK_FOR_INTERRUPTS();
		sleepers = count_sleepers(mask);
		if (!sleepers.any || queue == nullptr || queue->paused)
			return;
		count = count_claimable(call, queue, static_cast<int>(Min(sleepers.wanted, most_counted_for_sessions)));
		OUTBOX_STOP_POINT("worker_before_call");
		if (count == most_counted_for_sessions || shares_bit(slot))
		{
			wake_all(mask);
			return;
		}
	} while (!wake_for(mask, count, sleepers, afresh));
}

} // namespace

void
rouse_sessions()
{
	bool any = false;

	each_queue([&](QueueSlot *queue, Watch *watch) {
		if (pg_atomic_read_u32(&queue->rouse) != 0)
			watch->rouses |= pg_atomic_exchange_u32(&queue->rouse, 0) != 0;
		if (!watch->rouses)
			return;
		watch->rouses = count_sleepers(mask_of(queue)).any && !worker.left_alone;
		watch->afresh &= watch->rouses;
		any |= watch->rouses;
	});
	if (!any || is_resting(&worker.rouse))
		return;
	OUTBOX_STOP_POINT("worker_before_rouse");
	if (run_step(&worker.rouse, [] {
			Call call;

			begin_call(&call, name_in_ledger);
			each_queue([&](QueueSlot *queue, Watch *watch) {
				if (watch->rouses)
					rouse_for(&call, queue, watch->afresh);
			});
			end_call(&call);
		}))
		each_queue([](QueueSlot *, Watch *watch) { watch->rouses = watch->afresh = false; });
}

void
promise_to_rouse(bool rouses)
{
	bool did = pg_atomic_exchange_u32(&worker.slot->rouses, rouses) != 0;

	if (did && !rouses)
		wake_all(every_queue);
}

// ---- expired leases

namespace {

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

} // namespace

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

// ---- refusals

namespace {

constexpr int refusals_at_a_time = 200;

// What was written is given back once it is committed.
bool
record_some_refusals()
{
	RefusedReport *reports = static_cast<RefusedReport *>(palloc(sizeof(RefusedReport) * refusals_at_a_time));
	int count = peek_refused(&worker.slot->refused, reports, refusals_at_a_time);
	LostRefusals lost = lost_refusals(&worker.slot->refused);
	bool done = run_step(&worker.refusals, [&] {
		Call call;

		begin_call(&call, name_in_ledger);
		for (int i = 0; i < count; i++)
			write_refused(&call, reports[i]);
		write_lost_refusals(&call, lost);
		end_call(&call);
		// What is taken out of shared memory is on disk.
		ForceSyncCommit();
		OUTBOX_STOP_POINT("worker_writes_refusals");
	});

	pfree(reports);
	if (!done)
		return false;
	drop_refused(&worker.slot->refused, count);
	note_told(&worker.slot->refused, lost);
	return count == refusals_at_a_time;
}

} // namespace

// What comes meanwhile is for the next round.
void
record_refusals()
{
	int slices = most_refusals / refusals_at_a_time + 1;

	while (slices-- > 0 && has_refused(&worker.slot->refused) && record_some_refusals())
		;
}

// ---- keys that may have to go on

namespace {

void
set_marked(QueueSlot *slot, uint32 marked)
{
	pg_atomic_exchange_u32(&slot->marked, marked);
}

} // namespace

// A flag is taken before the look: a later commit raises it again.
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
			if (!settle_marks(&call, queue, all))
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

namespace {

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

// The session that was woken before may be held up: the safety poll wakes another one.
void
announce_afresh(const Call *call, const Queue *queue, QueueSlot *slot)
{
	announce_due(call, queue);
	if (slot != nullptr)
		watch_of(slot)->afresh = true;
}

// Slots of queues that two looks did not find, for example after a rollback, become free.
void
let_go_of_missing()
{
	each_queue([](QueueSlot *slot, Watch *watch) {
		if (watch->listed + 2 > worker.looks)
			return;
		pg_atomic_write_u32(&slot->dropped, 1);
		wake_all(mask_of(slot));
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
		if (!queue->paused && has_due(call, queue) && is_granted_any(call, queue))
			announce_afresh(call, queue, slot);
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
				if (is_granted_any(call, queue))
					announce_due(call, queue);
				watch->next_due = next_due_after(call, queue, call->now);
			}
		}
		watch->seen_until = call->now;
	});
}

} // namespace

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
	{
		report_notified(worker.told_directly);
		wake_unslotted();
	}
	if (told && all)
		worker.last_look = steady_us();
	else if (!told)
		announce(&worker.slot->look_at, 0); // all again, after the pause: nothing was announced
}

} // namespace outbox
