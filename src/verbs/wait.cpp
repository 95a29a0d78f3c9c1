// See wait.h; and wait_for_work: waits until something is claimable.
//
// Guarantee of wait_for_work: it holds no snapshot and no lock while it waits. It ends the
// transaction after each look and therefore refuses to run in a transaction block.

#include "verbs/wait.h"

#include "commit/notes.h"
#include "commit/waiters.h"
#include "server/args.h"
#include "server/client.h"
#include "server/clock.h"
#include "server/stop_point.h"
#include "server/boundary.h"
#include "message/fair.h"
#include "message/grant.h"
#include "message/order.h"

namespace outbox {

namespace {

// How long a session sleeps before it looks by itself: while the worker is in trouble, or a queue has no slot; and
// without a worker.
constexpr int64 look_again_us = 1 * USECS_PER_SEC;
constexpr int64 look_alone_us = 100 * 1000;

// all: a queue has no slot, perhaps because no look has found it yet.
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

// When it looks by itself. The worker wakes all before it stops to promise that it will.
int64
next_look(const Waiting *waiting, int64 looked_at)
{
	if (!is_alive(waiting->database))
		return looked_at + look_alone_us;
	if (waiting->mask == every_queue || pg_atomic_read_u32(&waiting->database->rouses) == 0)
		return looked_at + look_again_us;
	return PG_INT64_MAX;
}

void
sleep_until_called(Waiting *waiting)
{
	int64 looked_at = steady_us();
	int64 now = looked_at;

	for (;;)
	{
		int64 until = Min(waiting->ends_at, next_look(waiting, looked_at));

		if (is_called() || now >= until)
			return;
		wait_for_latch_or_client(until - now);
		CHECK_FOR_INTERRUPTS();
		now = steady_us();
	}
}

} // namespace

void
begin_waiting(Waiting *waiting, const List *queues, int wanted, int64 us)
{
	waiting->database = my_database();
	waiting->queues = queues;
	waiting->wanted = wanted;
	if (pg_add_s64_overflow(steady_us(), us, &waiting->ends_at))
		waiting->ends_at = PG_INT64_MAX;
	waiting->mask = mask_of_all(queues);
	wait_for_queues(waiting->mask, wanted);
}

bool
wait_on(Waiting *waiting)
{
	CHECK_FOR_INTERRUPTS();
	if (waiting->ends_at <= steady_us())
		return false;
	waiting->mask = mask_of_all(waiting->queues);
	wait_for_queues(waiting->mask, waiting->wanted);
	OUTBOX_STOP_POINT("wait_before_sleep");
	if (fall_asleep())
		sleep_until_called(waiting);
	if (wake_up())
		elog(DEBUG1, "woken for work");
	OUTBOX_STOP_POINT("wait_before_look");
	check_client();
	return true;
}

void
end_waiting(QueueMask found_in)
{
	rouse(found_in != 0 ? stop_waiting(found_in) : stop_waiting_after_nothing());
}

namespace {

bool
is_claimable(Call *call, const Queue *queue)
{
	// Marks that cannot be settled yet are no work.
	if (!XactReadOnly)
		settle_some_marks(call, queue);
	// Nor are messages of keys at their limit.
	return (queue->max_in_flight_per_key > 0 ? count_turns_due(call, queue, 1) > 0 : has_due(call, queue)) &&
		   is_granted_any(call, queue);
}

// The queues that have something: none or one.
QueueMask
find_claimable(const List *names)
{
	ListCell *cell;
	QueueMask found = 0;
	Call call;

	PushActiveSnapshot(GetTransactionSnapshot());
	begin_reading(&call);
	foreach (cell, queues_to_claim(&call, names))
	{
		const Queue *queue = static_cast<const Queue *>(lfirst(cell));

		if (found == 0 && !queue->paused && is_claimable(&call, queue))
			found = mask_of(queue_ref(text_to_cstring(queue->name)).slot);
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
	QueueMask found;

	refuse_in_transaction(fcinfo);
	PreventCommandDuringRecovery("wait_for_work()");
	// The names must outlive the transaction.
	previous = MemoryContextSwitchTo(PortalContext);
	names = queue_names_argument(fcinfo, 1, "default");
	MemoryContextSwitchTo(previous);
	begin_waiting(&waiting, names, 1, us);
	for (;;)
	{
		look_once([&] { found = find_claimable(names); });
		end_look();
		if (found != 0 || !wait_on(&waiting))
			break;
	}
	end_waiting(found);
	PG_RETURN_VOID();
}

} // namespace outbox
