// See waiters.h. Each process has a place.

#include "commit/waiters.h"

namespace outbox {

namespace {

struct Waiter {
	Oid database;
	int wanted;
	pg_atomic_uint64 queues; // 0 = it does not wait
	pg_atomic_uint64 called; // for which of them, since it woke up last
	pg_atomic_uint64 looking;
	pg_atomic_uint32 asleep;
	pg_atomic_uint32 again;
};

Waiter *waiters;
int level; // of this session
int last;  // the last place that the worker has woken

Waiter *
my_place()
{
	return &waiters[process_number()];
}

// Full barriers.
bool
unset(pg_atomic_uint32 *flag)
{
	return pg_atomic_exchange_u32(flag, 0) != 0;
}

QueueMask
clear(pg_atomic_uint64 *queues)
{
	return pg_atomic_exchange_u64(queues, 0);
}

bool
is_set(pg_atomic_uint32 *flag)
{
	return pg_atomic_read_u32(flag) != 0;
}

bool
has(pg_atomic_uint64 *queues, QueueMask queue)
{
	return (pg_atomic_read_u64(queues) & queue) != 0;
}

} // namespace

Size
waiters_size()
{
	return mul_size(sizeof(Waiter), static_cast<Size>(MaxBackends));
}

void
attach_waiters(bool found)
{
	bool is_made;

	waiters = static_cast<Waiter *>(ShmemInitStruct("outbox waiters", waiters_size(), &is_made));
	for (int i = 0; !found && i < MaxBackends; i++)
	{
		Waiter *waiter = &waiters[i];

		waiter->database = InvalidOid;
		waiter->wanted = 0;
		pg_atomic_init_u64(&waiter->queues, 0);
		pg_atomic_init_u64(&waiter->called, 0);
		pg_atomic_init_u64(&waiter->looking, 0);
		pg_atomic_init_u32(&waiter->asleep, 0);
		pg_atomic_init_u32(&waiter->again, 0);
	}
}

// ---- the session that waits

// A call that came after the last wait ended stays: the worker may have seen this one.
void
wait_for_queues(QueueMask queues, int wanted)
{
	level = GetCurrentTransactionNestLevel();
	if (waiters == nullptr)
		return;
	my_place()->database = MyDatabaseId;
	my_place()->wanted = wanted;
	pg_write_barrier();
	pg_atomic_exchange_u64(&my_place()->queues, queues);
}

void
begin_look()
{
	if (waiters != nullptr)
		unset(&my_place()->again);
}

bool
fall_asleep()
{
	QueueMask looking;

	if (waiters == nullptr)
		return true;
	looking = clear(&my_place()->looking);
	// The worker may have taken it for one who finds what has come meanwhile.
	if (is_set(&my_place()->again))
		pg_atomic_write_u64(&my_place()->looking, looking);
	pg_atomic_exchange_u32(&my_place()->asleep, 1);
	return !is_called();
}

bool
is_called()
{
	return waiters != nullptr && (pg_atomic_read_u64(&my_place()->called) != 0 || is_set(&my_place()->again));
}

// It stands for the calls at each moment in between.
bool
wake_up()
{
	QueueMask looking;
	bool again;

	if (waiters == nullptr)
		return false;
	looking = pg_atomic_read_u64(&my_place()->looking);
	again = is_set(&my_place()->again);
	pg_atomic_write_u64(&my_place()->looking, looking | pg_atomic_read_u64(&my_place()->called));
	looking |= clear(&my_place()->called);
	pg_atomic_write_u64(&my_place()->looking, looking);
	unset(&my_place()->asleep);
	return again || looking != 0;
}

QueueMask
stop_waiting(QueueMask found_in)
{
	QueueMask looking;
	QueueMask called;
	bool is_done;

	level = 0;
	if (waiters == nullptr)
		return 0;
	clear(&my_place()->queues);
	looking = clear(&my_place()->looking);
	called = clear(&my_place()->called);
	unset(&my_place()->asleep);
	// What it found elsewhere it did not take here.
	is_done = looking == found_in && !is_set(&my_place()->again);
	return called | (is_done ? 0 : looking);
}

QueueMask
stop_waiting_after_nothing()
{
	return stop_waiting(waiters != nullptr ? pg_atomic_read_u64(&my_place()->looking) : 0);
}

int
waits_at_level()
{
	return level;
}

// ---- the worker of its database

namespace {

template <typename Body>
void
each_waiter(QueueMask queues, const Body &body)
{
	int first = last + 1;

	pg_memory_barrier();
	for (int n = 0; n < MaxBackends; n++)
	{
		int i = (first + n) % MaxBackends;

		if (has(&waiters[i].queues, queues) && waiters[i].database == MyDatabaseId)
			body(i, &waiters[i]);
	}
}

void
set_latch(int i)
{
	SetLatch(&GetPGProcByNumber(i)->procLatch);
}

void
have_look_again(int i, Waiter *waiter)
{
	pg_atomic_exchange_u32(&waiter->again, 1);
	set_latch(i);
}

// Before it sleeps, or because it can stand for nothing.
bool
looks_again(Waiter *waiter)
{
	return !is_set(&waiter->asleep) || pg_atomic_read_u64(&waiter->queues) == every_queue;
}

bool
is_callable(Waiter *waiter)
{
	return !looks_again(waiter) && pg_atomic_read_u64(&waiter->called) == 0 && !is_set(&waiter->again);
}

// Whether it will see all that is there now before it sleeps; who is looking was asked to look again.
bool
stands_for(Waiter *waiter, QueueMask queue)
{
	return has(&waiter->called, queue) || has(&waiter->looking, queue);
}

// False if it has left meanwhile.
bool
call_one(int i, Waiter *waiter, QueueMask queue)
{
	pg_atomic_fetch_or_u64(&waiter->called, queue);
	if (!has(&waiter->queues, queue) || waiter->database != MyDatabaseId)
		return false;
	set_latch(i);
	last = i;
	return true;
}

} // namespace

Sleepers
count_sleepers(QueueMask queue)
{
	Sleepers sleepers = {};

	each_waiter(queue, [&](int i, Waiter *waiter) {
		if (looks_again(waiter))
			have_look_again(i, waiter);
		sleepers.any |= is_callable(waiter);
		sleepers.wanted += waiter->wanted;
		sleepers.standing += stands_for(waiter, queue) ? waiter->wanted : 0;
	});
	return sleepers;
}

bool
wake_for(QueueMask queue, int64 messages, const Sleepers &before, bool afresh)
{
	int64 standing = 0;

	each_waiter(queue, [&](int i, Waiter *waiter) {
		if (looks_again(waiter))
			have_look_again(i, waiter);
		standing += stands_for(waiter, queue) ? waiter->wanted : 0;
	});
	if (standing < before.standing)
		return false;
	messages -= afresh ? 0 : standing;
	each_waiter(queue, [&](int i, Waiter *waiter) {
		if (messages > 0 && is_callable(waiter) && call_one(i, waiter, queue))
			messages -= waiter->wanted;
	});
	return true;
}

void
wake_all(QueueMask queues)
{
	if (waiters != nullptr)
		each_waiter(queues, have_look_again);
}

void
wake_unslotted()
{
	each_waiter(every_queue, [](int i, Waiter *waiter) {
		if (looks_again(waiter))
			have_look_again(i, waiter);
	});
}

} // namespace outbox
