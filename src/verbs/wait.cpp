// See wait.h; and wait_for_work: waits until something is claimable.
//
// Guarantee of wait_for_work: it holds no snapshot and no lock while it waits. It ends the
// transaction after each look and therefore refuses to run in a transaction block.

#include "verbs/wait.h"

#include "commit/waiters.h"
#include "server/args.h"
#include "server/client.h"
#include "server/clock.h"
#include "server/boundary.h"
#include "message/due.h"
#include "message/grant.h"
#include "message/order.h"

namespace outbox {

namespace {

// The longest sleep before a look, or before a check whether the worker still runs.
constexpr int64 look_again_us = 1 * USECS_PER_SEC;
constexpr int64 look_alone_us = 100 * 1000;

} // namespace

void
begin_waiting(Waiting *waiting, const List *queues, int64 us)
{
	waiting->database = my_database();
	waiting->queues = queues;
	if (pg_add_s64_overflow(steady_us(), us, &waiting->ends_at))
		waiting->ends_at = PG_INT64_MAX;
	// For all queues, until a look has found them: then each has a slot.
	wait_for_queues(every_queue);
}

namespace {

QueueMask
mask_of_all(const List *names)
{
	QueueMask mask = 0;
	ListCell *cell;

	foreach (cell, names)
	{
		char *name = text_to_cstring(static_cast<const text *>(lfirst(cell)));

		mask |= mask_of(queue_ref(name, false).slot);
		pfree(name);
	}
	return mask;
}

} // namespace

bool
wait_on(Waiting *waiting)
{
	int64 now = steady_us();
	int64 until = Min(waiting->ends_at, now + (is_alive(waiting->database) ? look_again_us : look_alone_us));
	bool woken;

	CHECK_FOR_INTERRUPTS();
	if (waiting->ends_at <= now)
		return false;
	wait_for_queues(mask_of_all(waiting->queues));
	while (!(woken = was_woken()) && now < until)
	{
		wait_for_latch(until - now);
		CHECK_FOR_INTERRUPTS();
		now = steady_us();
	}
	if (woken)
		elog(DEBUG1, "woken for work");
	check_client();
	return true;
}

void
end_waiting()
{
	wait_no_more();
}

namespace {

bool
is_claimable(Call *call, const Queue *queue)
{
	// Marks that cannot be settled yet are no work.
	if (!XactReadOnly)
		settle_some_marks(call, queue);
	return has_due(call, queue) && is_granted_any(call, queue);
}

bool
is_any_claimable(const List *names)
{
	ListCell *cell;
	bool found = false;
	Call call;

	PushActiveSnapshot(GetTransactionSnapshot());
	begin_reading(&call);
	foreach (cell, queues_named(&call, names))
	{
		const Queue *queue = static_cast<const Queue *>(lfirst(cell));

		found = found || (!queue->paused && is_claimable(&call, queue));
	}
	end_reading(&call);
	PopActiveSnapshot();
	return found;
}

// Ends the transaction of this look, with its snapshot and its locks.
void
end_look()
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

void
refuse_in_transaction(FunctionCallInfo fcinfo)
{
	bool atomic = fcinfo->context == nullptr || !IsA(fcinfo->context, CallContext) ||
				  reinterpret_cast<CallContext *>(fcinfo->context)->atomic;

	if (atomic || TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("wait_for_work cannot run inside a transaction block or after a write"),
						errdetail("It ends the transaction, because it holds no snapshot while it waits."),
						errhint("Turn on autocommit in your driver, and send the CALL as a separate statement.")));
}

} // namespace

OUTBOX_FUNCTION(outbox_wait_for_work)
{
	int64 us = nonnegative_interval_us(DatumGetIntervalP(required_datum(fcinfo, 0, "max_wait")), "max_wait");
	MemoryContext previous;
	const List *names;
	Waiting waiting;

	refuse_in_transaction(fcinfo);
	PreventCommandDuringRecovery("wait_for_work()");
	// The names must outlive the transaction.
	previous = MemoryContextSwitchTo(PortalContext);
	names = queue_names_argument(fcinfo, 1, "default");
	MemoryContextSwitchTo(previous);
	for (;;)
	{
		bool found;

		begin_waiting(&waiting, names, us);
		look_once([&] { found = is_any_claimable(names); });
		end_look();
		if (found || !wait_on(&waiting))
			break;
		us = Max(waiting.ends_at - steady_us(), 0);
	}
	end_waiting();
	PG_RETURN_VOID();
}

} // namespace outbox
