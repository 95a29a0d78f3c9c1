// A process that handles messages: it leases a batch of a queue, handles one after the other (verbs/handle.h), goes on
// to the next queue, and ends when there is nothing more.
//
// Guarantees: a session runs the handlers of one owner only, so nothing that they leave behind in it meets another's. A
// lease is on disk before the handler runs, so a crash costs an attempt. When it is asked to end, it cancels the
// handler, and gives back what it has not begun. It makes room for other owners after a second, and for other databases
// where background worker slots are missing.
//
// Shape: commits are asynchronous: what a handler did and the outcome are lost together in a crash of the server, and
// the message is handled again. A batch ends on disk. Its size follows the handler: as many as take a quarter of a
// second. A process that has nothing to do stays for a second, for the worker to call it: a process for each message
// would cost more than most handlers.

#include "process/step.h"
#include "server/boundary.h"
#include "server/stop_point.h"
#include "upkeep/installed.h"
#include "verbs/handle.h"

namespace outbox {

namespace {

constexpr int most_at_a_time = 100;
constexpr int64 batch_us = 250 * 1000;
constexpr int64 idle_us = 1 * USECS_PER_SEC;
constexpr int64 turn_us = 1 * USECS_PER_SEC;
// The lease of an interrupted batch must not be waited for.
constexpr char no_lock_timeout[] = "0";

struct Process {
	DatabaseSlot *slot;
	HandlerPlace *place;
	Step step;
	MemoryContext round;
	MemoryContext batch;
	int64 began; // steady clock
	Oid owner;   // of the handlers that it runs
	bool others; // have something to do
	bool unable; // a handler is
	bool all;    // that it can do was done
	int size;    // of the next batch
	int64 turn;
};

Process process;

// ---- its place

void
leave_handler(int, Datum)
{
	int rest = 0;

	if (!process.all)
		pg_atomic_write_u32(&process.slot->unhandled, 1);
	pg_atomic_write_u32(&process.place->pid, 0);
	pg_atomic_exchange_u32(&process.place->process, 0);
	for (HandlerPlace &place : process.slot->handlers)
		rest = Max(rest, static_cast<int>(pg_atomic_read_u32(&place.pid)));
	change_status(&process.slot->handler, [&](ProcessStatus *status) {
		status->pid = rest;
		status->since = GetCurrentTimestamp();
	});
	wake_process(pg_atomic_read_u32(&process.slot->worker));
}

HandlerPlace *
take_place(DatabaseSlot *slot)
{
	for (int i = 0; slot != nullptr && i < handler_workers(); i++)
	{
		uint32 none = 0;

		if (pg_atomic_compare_exchange_u32(&slot->handlers[i].process, &none, process_number() + 1))
			return &slot->handlers[i];
	}
	return nullptr;
}

void
attach_handler()
{
	process.slot = database_slot(MyDatabaseId, false);
	process.place = take_place(process.slot);
	if (process.place == nullptr)
		proc_exit(0);
	before_shmem_exit(leave_handler, 0);
	pg_atomic_write_u32(&process.place->handles, static_cast<uint32>(Handles::working));
	pg_atomic_write_u32(&process.place->pid, static_cast<uint32>(MyProcPid));
	change_status(&process.slot->handler, [](ProcessStatus *status) {
		status->pid = MyProcPid;
		status->since = GetCurrentTimestamp();
		status->starts++;
	});
}

bool
must_end()
{
	forget_cancel(); // for a transaction that was over before
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return is_asked_to_end() || pg_atomic_read_u32(&process.slot->leave) != 0 || !workers_wanted() ||
		   process.place - process.slot->handlers >= handler_workers();
}

bool
makes_room()
{
	return (process.others || is_short()) && steady_us() >= process.began + turn_us;
}

// ---- a batch

void
tell_unable(const char *queue, const ErrorData *error)
{
	process.unable = true;
	step_failed(&process.step, error->sqlerrcode,
				queue == nullptr ? error->message : psprintf("queue \"%s\": %s", queue, error->message), error->detail);
}

template <typename Body>
bool
in_own_transaction(const char *queue, const Body &body)
{
	ErrorData *error = in_transaction(body);

	if (error != nullptr && !is_asked_to_end())
		tell_unable(queue, error);
	return error == nullptr;
}

void
handle_leased(HandlerBatch *batch)
{
	while (!is_over(batch) && !must_end())
	{
		Handled handled;

		if (lacks_time(batch) && !in_own_transaction(batch->queue, [&] { renew_batch(batch); }))
			return;
		handled = handle_next(batch);
		if (handled.handling == Handling::unable)
		{
			tell_unable(batch->queue, handled.error);
			return;
		}
	}
}

void
set_size(int done, int64 us)
{
	int64 fit = us > 0 ? done * batch_us / us : most_at_a_time;

	process.size = static_cast<int>(Max(1, Min(Min(fit, process.size * 2), most_at_a_time)));
}

// Returns whether there was something to do.
bool
handle_batch(const char *queue)
{
	HandlerBatch batch = {};
	int64 began = steady_us();

	MemoryContextReset(process.batch);
	MemoryContextSwitchTo(process.batch);
	if (!in_own_transaction(queue, [&] { lease_batch(&batch, queue, process.size, process.batch); }) ||
		batch.count == 0)
		return false;
	// The leases, and what was handled before.
	XLogFlush(XactLastCommitEnd);
	OUTBOX_STOP_POINT("handler_after_lease");
	handle_leased(&batch);
	set_size(batch.done, steady_us() - began);
	if (!is_over(&batch))
	{
		forget_cancel();
		in_own_transaction(queue, [&] { return_batch(&batch); });
	}
	return true;
}

// ---- a round

bool
may_work()
{
	return find_extension() == Finding::present && !is_being_filled() && is_no_restore();
}

List *
find_work()
{
	List *queues = NIL;

	MemoryContextReset(process.round);
	MemoryContextSwitchTo(process.round);
	in_own_transaction(nullptr, [&] {
		if (may_work())
			queues = queues_to_handle(process.round);
	});
	MemoryContextSwitchTo(process.round);
	return queues;
}

bool
serve_queue(const HandledQueue *queue)
{
	if (queue->error != nullptr)
	{
		tell_unable(queue->name, queue->error);
		return false;
	}
	if (!OidIsValid(process.owner))
		process.owner = queue->owner;
	process.others |= queue->owner != process.owner;
	return queue->owner == process.owner && handle_batch(queue->name);
}

// A batch of each queue, from another one each time.
bool
go_round()
{
	List *queues = find_work();
	int count = list_length(queues);
	bool found = false;

	process.others = process.unable = false;
	for (int i = 0; i < count && !must_end(); i++)
		found |= serve_queue(static_cast<const HandledQueue *>(list_nth(queues, (i + process.turn) % count)));
	process.turn++;
	process.all = !found && !process.others;
	if (!process.unable)
		step_succeeded(&process.step);
	return found;
}

// Whether it was called. The worker may want to call since before it can see that this process is idle.
bool
wait_for_call()
{
	int64 until = steady_us() + idle_us;
	uint32 idle = static_cast<uint32>(Handles::idle);
	int64 now;

	XLogFlush(XactLastCommitEnd);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, "waiting for messages to handle");
	pg_atomic_exchange_u32(&process.place->handles, idle);
	wake_process(pg_atomic_read_u32(&process.slot->worker));
	while ((now = steady_us()) < until && pg_atomic_read_u32(&process.place->handles) == idle && !must_end())
	{
		wait_for_latch(until - now);
		CHECK_FOR_INTERRUPTS();
	}
	return !pg_atomic_compare_exchange_u32(&process.place->handles, &idle, static_cast<uint32>(Handles::working));
}

} // namespace

OUTBOX_PROCESS(outbox_handler_main)
{
	connect_or_end(DatumGetObjectId(argument));
	attach_handler();
	process.step = make_step(&process.slot->handler, 0, "handle messages", no_lock_timeout);
	process.round = AllocSetContextCreate(TopMemoryContext, "outbox handler round", ALLOCSET_DEFAULT_SIZES);
	process.batch = AllocSetContextCreate(TopMemoryContext, "outbox handler batch", ALLOCSET_DEFAULT_SIZES);
	process.began = steady_us();
	process.size = 1;
	process.turn = pg_atomic_fetch_add_u32(&process.slot->handler_turn, 1);
	do
	{
		begin_step(&process.step);
		process.all = false;
		pg_atomic_write_u32(&process.place->handles, static_cast<uint32>(Handles::working));
		while (!must_end() && !makes_room() && go_round())
			;
	} while (!must_end() && !makes_room() && !process.others && !process.unable && wait_for_call());
	XLogFlush(XactLastCommitEnd);
	proc_exit(0);
}

} // namespace outbox
