// The maintenance process of a database: short-lived, so that wake-ups never wait behind
// DDL. What it does is what outbox.maintain() does, by the same code.
//
// Guarantees: each pair of partitions is made in a transaction of its own, under a short
// lock_timeout, as the tables' owner in a security-restricted context; a database that is
// being filled by a restore or a subscription is left alone. What it could not do it
// reports; the worker asks again.

#include "maintenance.h"

#include "background.h"
#include "boundary.h"
#include "partitions.h"
#include "work.h"

namespace outbox {

namespace {

// ---- the worker's side

constexpr int64 usual_pause_us = 10 * USECS_PER_MINUTE;

BackgroundWorkerHandle *process;
int64 next_at;	// steady clock

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

}	// namespace

void
ask_for_maintenance(DatabaseSlot *slot)
{
	MemoryContext context;

	if (is_maintaining() || steady_us() < next_at)
		return;
	next_at = steady_us() + usual_pause_us;
	context = MemoryContextSwitchTo(TopMemoryContext);
	process = start_process("maintenance", MyDatabaseId);
	MemoryContextSwitchTo(context);
	if (process != nullptr)
		return;
	next_at = steady_us() + USECS_PER_MINUTE;
	report_error(&slot->maintenance, "no background worker slot is free: increase max_worker_processes");
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

Report *report;

void
at_exit(int, Datum)
{
	end_report(report);
}

void
failed(const char *message)
{
	bool first = most_failures(report) == 0;

	report_error(report, message);
	change_report(report, [](Report *mine) { mine->troubles[0].failures++; });
	if (first)
		ereport(LOG, (errmsg("outbox maintenance could not make partitions: %s", message),
					  errdetail("Messages of that time go to the DEFAULT partition unless a later try succeeds.")));
}

bool
make_pair(int ahead)
{
	const char *left = nullptr;
	MemoryContext context = CurrentMemoryContext;
	ErrorData *error = in_transaction([&] {
		MadePair pair = {};
		Work work;

		if (find_extension() != Finding::present || is_being_filled())
			return;
		begin_reading(&work);
		pair = make_partitions(ahead);
		end_reading(&work);
		if (pair.left)
			left = MemoryContextStrdup(context, pair.detail);
	});

	if (error != nullptr)
		left = error->message;
	if (left != nullptr)
		failed(left);
	return left == nullptr;
}

}	// namespace

}	// namespace outbox

using namespace outbox;

OUTBOX_PROCESS(outbox_maintenance_main)
{
	DatabaseSlot *slot;
	bool well = true;

	connect_process(DatumGetObjectId(argument));
	slot = database_slot(MyDatabaseId, false);
	if (slot == nullptr || !begin_report(&slot->maintenance))
		proc_exit(0);
	report = &slot->maintenance;
	change_report(report, [](Report *mine) { mine->starts++; });
	before_shmem_exit(at_exit, 0);
	pgstat_report_activity(STATE_RUNNING, "making partitions");
	for (int ahead = 0; well && ahead <= partitions_ahead; ahead++)
		well = make_pair(ahead);
	if (well && most_failures(report) > 0)
	{
		change_report(report, [](Report *mine) { mine->troubles[0].failures = 0; });
		ereport(LOG, (errmsg("outbox maintenance has made partitions again")));
	}
	proc_exit(0);
}
