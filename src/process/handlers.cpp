// See handlers.h.

#include "process/handlers.h"

#include "process/step.h"

namespace outbox {

namespace {

constexpr int64 longest_start_pause_us = 500 * 1000;
// What a database that has made room leaves to the others.
constexpr int64 polite_pause_us = 1 * USECS_PER_SEC;

BackgroundWorkerHandle *processes[most_handler_workers];
bool wanted;
bool full;      // as many run as may
int64 start_at; // steady clock: not before
Step starting;

bool
is_stopped(BackgroundWorkerHandle *process)
{
	pid_t pid;

	return GetBackgroundWorkerPid(process, &pid) == BGWH_STOPPED;
}

// If a handler cannot run, the next try is later.
void
follow_end(DatabaseSlot *slot)
{
	int failures = most_failures(&slot->handler);
	int64 pause = failures > 0 ? Min(pause_us(failures), polite_pause_us) : 0;

	if (is_short())
		pause = polite_pause_us;
	start_at = Max(start_at, steady_us() + pause);
}

// The place of one that has ended, or was never used; nullptr if as many run as may.
BackgroundWorkerHandle **
free_process(DatabaseSlot *slot)
{
	BackgroundWorkerHandle **room = nullptr;
	int others = 0; // of an earlier worker
	int running = 0;

	for (BackgroundWorkerHandle *&process : processes)
	{
		if (process != nullptr && is_stopped(process))
		{
			pfree(process);
			process = nullptr;
			follow_end(slot);
		}
		running += process != nullptr;
		if (process == nullptr && room == nullptr)
			room = &process;
	}
	for (HandlerPlace &place : slot->handlers)
		others += pg_atomic_read_u32(&place.process) != 0;
	return Max(running, others) < handler_workers() ? room : nullptr;
}

bool
call_idle(DatabaseSlot *slot)
{
	for (HandlerPlace &place : slot->handlers)
	{
		uint32 idle = static_cast<uint32>(Handles::idle);
		uint32 process = pg_atomic_read_u32(&place.process);

		if (process == 0 ||
			!pg_atomic_compare_exchange_u32(&place.handles, &idle, static_cast<uint32>(Handles::called)))
			continue;
		wake_process(process);
		return true;
	}
	return false;
}

} // namespace

void
want_handlers()
{
	wanted = true;
}

void
start_handlers(DatabaseSlot *slot)
{
	BackgroundWorkerHandle **room = free_process(slot);
	MemoryContext context;

	wanted |= pg_atomic_exchange_u32(&slot->unhandled, 0) != 0;
	if (!wanted)
		return;
	if (call_idle(slot))
	{
		wanted = false;
		return;
	}
	full = room == nullptr;
	if (full || steady_us() < start_at)
		return;
	if (starting.report == nullptr)
		starting = make_step(&slot->handler, 1, "start handlers", usual_lock_timeout);
	context = MemoryContextSwitchTo(TopMemoryContext);
	*room = start_process("handler", MyDatabaseId);
	MemoryContextSwitchTo(context);
	if (*room != nullptr)
	{
		wanted = false;
		step_succeeded(&starting);
		return;
	}
	note_shortage();
	step_failed(&starting, 0, "no background worker slot is free",
				"Messages wait for it. Increase max_worker_processes.");
	start_at = steady_us() + Min(pause_us(starting.trouble->failures), longest_start_pause_us);
}

int64
handlers_start_in()
{
	return wanted && !full ? Max(start_at - steady_us(), 0) : PG_INT64_MAX;
}

void
end_handlers()
{
	for (BackgroundWorkerHandle *process : processes)
		if (process != nullptr)
			TerminateBackgroundWorker(process);
	for (BackgroundWorkerHandle *process : processes)
		if (process != nullptr)
			WaitForBackgroundWorkerShutdown(process);
}

} // namespace outbox
