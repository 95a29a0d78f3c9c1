// See waiters.h. Each process has a place. Others write only its flag.

#include "commit/waiters.h"

namespace outbox {

namespace {

struct Waiter {
	Oid database;
	pg_atomic_uint32 woken;
	pg_atomic_uint64 queues; // 0 = it does not wait
};

Waiter *waiters;

} // namespace

Size
waiters_size()
{
	return mul_size(sizeof(Waiter), static_cast<Size>(MaxBackends));
}

void
attach_waiters(bool found)
{
	bool mine;

	waiters = static_cast<Waiter *>(ShmemInitStruct("outbox waiters", waiters_size(), &mine));
	for (int i = 0; !found && i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&waiters[i].woken, 0);
		pg_atomic_init_u64(&waiters[i].queues, 0);
	}
}

void
wait_for_queues(QueueMask queues)
{
	Waiter *mine;

	if (waiters == nullptr)
		return;
	mine = &waiters[process_number()];
	mine->database = MyDatabaseId;
	pg_write_barrier();
	// Before the look that follows: a full barrier.
	pg_atomic_exchange_u64(&mine->queues, queues);
}

bool
was_woken()
{
	return waiters != nullptr && pg_atomic_exchange_u32(&waiters[process_number()].woken, 0) != 0;
}

void
wait_no_more()
{
	if (waiters == nullptr)
		return;
	pg_atomic_write_u64(&waiters[process_number()].queues, 0);
	pg_atomic_write_u32(&waiters[process_number()].woken, 0);
}

void
wake_waiters(QueueMask queues)
{
	pg_memory_barrier();
	for (int i = 0; i < MaxBackends; i++)
	{
		Waiter *waiter = &waiters[i];

		if ((pg_atomic_read_u64(&waiter->queues) & queues) == 0 || waiter->database != MyDatabaseId)
			continue;
		pg_atomic_exchange_u32(&waiter->woken, 1);
		SetLatch(&GetPGProcByNumber(i)->procLatch);
	}
}

} // namespace outbox
