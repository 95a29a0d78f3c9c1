// See shared.h.

#include "commit/shared.h"

#include "commit/waiters.h"
#include "server/settings.h"

namespace outbox {

Shared *shared;

namespace {

shmem_request_hook_type previous_request;
shmem_startup_hook_type previous_startup;

// The slots that this session used last: a queue in them is found without the lock.
constexpr int remembered_slots = 16;
struct Remembered {
	QueueRef ref;
	char name[NAMEDATALEN];
} remembered[remembered_slots];

Size
shared_size()
{
	return add_size(offsetof(Shared, queues), mul_size(sizeof(QueueSlot), static_cast<Size>(max_queues())));
}

void
request_shared()
{
	if (previous_request != nullptr)
		previous_request();
	RequestAddinShmemSpace(add_size(add_size(shared_size(), waiters_size()), refused_size()));
	RequestNamedLWLockTranche("outbox", 1);
}

void
init_database(DatabaseSlot *slot)
{
	pg_atomic_init_u32(&slot->finding, static_cast<uint32>(Finding::unknown));
	pg_atomic_init_u32(&slot->worker, 0);
	pg_atomic_init_u32(&slot->leave, 0);
	pg_atomic_init_u32(&slot->unstarted, 0);
	pg_atomic_init_u32(&slot->rouses, 0);
	pg_atomic_init_u32(&slot->went_round, 0);
	pg_atomic_init_u32(&slot->made_anew, 0);
	pg_atomic_init_u32(&slot->unhandled, 0);
	pg_atomic_init_u32(&slot->only_seals, 0);
	pg_atomic_init_u32(&slot->handler_turn, 0);
	pg_atomic_init_u32(&slot->written, InvalidOid);
	pg_atomic_init_u64(&slot->sleeps_until, 0);
	pg_atomic_init_u64(&slot->look_at, static_cast<uint64>(DT_NOEND));
	pg_atomic_init_u64(&slot->expires_at, static_cast<uint64>(DT_NOEND));
	pg_atomic_init_u64(&slot->settle_at, static_cast<uint64>(DT_NOEND));
	pg_atomic_init_u64(&slot->record_floor, 0);
	reset_floor(&slot->lease_floor);
	memset(&slot->report, 0, sizeof(slot->report));
	memset(&slot->maintenance, 0, sizeof(slot->maintenance));
	memset(&slot->handler, 0, sizeof(slot->handler));
	for (HandlerPlace &place : slot->handlers)
	{
		pg_atomic_init_u32(&place.process, 0);
		pg_atomic_init_u32(&place.pid, 0);
		pg_atomic_init_u32(&place.handles, static_cast<uint32>(Handles::working));
	}
}

// All that outbox.stats shows of a queue.
template <typename Body>
void
each_counter(QueueSlot *slot, const Body &body)
{
	for (pg_atomic_uint64 &counter : slot->counts)
		body(&counter);
	for (pg_atomic_uint64 &counter : slot->latency)
		body(&counter);
	for (pg_atomic_uint64 &counter : slot->wakeup_delay)
		body(&counter);
	body(&slot->wakeup_delay_sum_us);
}

void
init_queue(QueueSlot *slot)
{
	pg_atomic_init_u32(&slot->wake, 0);
	pg_atomic_init_u64(&slot->woken_at, 0);
	pg_atomic_init_u32(&slot->rouse, 0);
	pg_atomic_init_u64(&slot->due_at, static_cast<uint64>(DT_NOEND));
	pg_atomic_init_u32(&slot->dropped, 0);
	pg_atomic_init_u32(&slot->altered, 0);
	pg_atomic_init_u32(&slot->marked, 1); // until it is found that it has none
	pg_atomic_init_u32(&slot->key_refused, 0);
	pg_atomic_init_u32(&slot->key_contended, 0);
	for (pg_atomic_uint64 &turn : slot->turns)
		pg_atomic_init_u64(&turn, 0);
	each_counter(slot, [](pg_atomic_uint64 *counter) { pg_atomic_init_u64(counter, 0); });
	slot->reset_at = 0;
	for (pg_atomic_uint64 &count : slot->kept)
		pg_atomic_init_u64(&count, 0);
	pg_atomic_init_u64(&slot->scheduled, 0);
	pg_atomic_init_u64(&slot->counted_at, 0);
	reset_in_flight(&slot->in_flight);
	reset_spending(&slot->spending);
	for (Floor &floor : slot->due_floors)
		reset_floor(&floor);
}

void
start_shared()
{
	bool found;

	if (previous_startup != nullptr)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = static_cast<Shared *>(ShmemInitStruct("outbox", shared_size(), &found));
	if (!found)
	{
		shared->lock = &GetNamedLWLockTranche("outbox")->lock;
		pg_atomic_init_u32(&shared->launcher, 0);
		pg_atomic_init_u32(&shared->news, 0);
		pg_atomic_init_u32(&shared->slotless_news, 0);
		pg_atomic_init_u64(&shared->short_at, 0);
		memset(&shared->report, 0, sizeof(shared->report));
		shared->queue_slots = max_queues();
		shared->queues_used = 0;
		for (DatabaseSlot &slot : shared->databases)
		{
			slot.database = InvalidOid;
			init_floor(&slot.lease_floor);
			init_refused(&slot.refused);
			init_database(&slot);
		}
		for (int i = 0; i < shared->queue_slots; i++)
		{
			pg_atomic_init_u32(&shared->queues[i].generation, 0);
			shared->queues[i].database = InvalidOid;
			init_in_flight(&shared->queues[i].in_flight);
			init_spending(&shared->queues[i].spending);
			for (Floor &floor : shared->queues[i].due_floors)
				init_floor(&floor);
			init_queue(&shared->queues[i]);
		}
	}
	attach_waiters(found);
	attach_refused(found);
	LWLockRelease(AddinShmemInitLock);
}

DatabaseSlot *
find_database(Oid database)
{
	for (DatabaseSlot &slot : shared->databases)
		if (slot.database == database)
			return &slot;
	return nullptr;
}

QueueSlot *
find_slot(const char *name, uint32 hash)
{
	QueueSlot *found = nullptr;

	each_slot(MyDatabaseId, [&](QueueSlot *slot) {
		if (slot->hash == hash && strcmp(slot->name, name) == 0 && !is_dropped(slot))
			found = slot;
	});
	return found;
}

bool
is_known(const Remembered *last, const char *name)
{
	return strcmp(last->name, name) == 0 && is_still(last->ref) && !is_dropped(last->ref.slot);
}

// Under the lock: otherwise the slot may pass to another queue.
void
remember_slot(Remembered *last, const char *name, QueueSlot *slot)
{
	last->ref = ref_to(slot);
	strlcpy(last->name, name, sizeof(last->name));
}

// Frees a slot. Those that noted it find another generation.
void
free_queue(QueueSlot *slot)
{
	pg_atomic_fetch_add_u32(&slot->generation, 1);
	slot->database = InvalidOid;
}

// The queue is gone, and the worker has taken all its announcements.
bool
is_reusable(QueueSlot *slot)
{
	return slot->database == InvalidOid ||
		   (is_dropped(slot) && pg_atomic_read_u32(&slot->wake) == 0 && announced(&slot->due_at) == DT_NOEND);
}

// Takes a slot that was never used, or that of a dropped queue.
QueueSlot *
make_queue(const char *name, uint32 hash)
{
	QueueSlot *slot = nullptr;

	if (shared->queues_used < shared->queue_slots)
		slot = &shared->queues[shared->queues_used];
	for (int i = 0; slot == nullptr && i < shared->queues_used; i++)
		if (is_reusable(&shared->queues[i]))
			slot = &shared->queues[i];
	if (slot == nullptr)
		return nullptr;
	free_queue(slot);
	init_queue(slot);
	slot->reset_at = GetCurrentTimestamp();
	slot->hash = hash;
	strlcpy(slot->name, name, sizeof(slot->name));
	slot->database = MyDatabaseId;
	if (slot_number(slot) == shared->queues_used)
		shared->queues_used++;
	return slot;
}

} // namespace

void
request_shared_memory()
{
	previous_request = shmem_request_hook;
	shmem_request_hook = request_shared;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared;
}

DatabaseSlot *
database_slot(Oid database, bool make)
{
	DatabaseSlot *slot;

	if (shared == nullptr)
		return nullptr;
	LWLockAcquire(shared->lock, make ? LW_EXCLUSIVE : LW_SHARED);
	slot = find_database(database);
	if (slot == nullptr && make && (slot = find_database(InvalidOid)) != nullptr)
	{
		init_database(slot);
		pg_write_barrier();
		slot->database = database;
	}
	LWLockRelease(shared->lock);
	return slot;
}

DatabaseSlot *
my_database()
{
	static DatabaseSlot *mine;

	if (shared != nullptr && (mine == nullptr || mine->database != MyDatabaseId))
		mine = find_database(MyDatabaseId);
	return mine;
}

void
forget_database(Oid database)
{
	DatabaseSlot *slot;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = find_database(database);
	if (slot != nullptr)
		forget_refused(&slot->refused);
	if (slot != nullptr)
		slot->database = InvalidOid;
	LWLockRelease(shared->lock);
	forget_queues(database);
}

void
forget_queues(Oid database)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	each_slot(database, free_queue);
	LWLockRelease(shared->lock);
}

QueueRef
queue_ref(const char *name, bool make)
{
	uint32 hash =
		DatumGetUInt32(hash_any(reinterpret_cast<const unsigned char *>(name), static_cast<int>(strlen(name))));
	Remembered *last = &remembered[hash % remembered_slots];

	if (shared == nullptr)
		return {nullptr, 0};
	if (!is_known(last, name))
	{
		LWLockAcquire(shared->lock, LW_SHARED);
		remember_slot(last, name, find_slot(name, hash));
		LWLockRelease(shared->lock);
	}
	if (last->ref.slot == nullptr && make)
	{
		QueueSlot *slot;

		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		slot = find_slot(name, hash);
		remember_slot(last, name, slot != nullptr ? slot : make_queue(name, hash));
		LWLockRelease(shared->lock);
	}
	return last->ref;
}

void
reset_counts(QueueSlot *slot, TimestampTz now)
{
	each_counter(slot, [](pg_atomic_uint64 *counter) { pg_atomic_write_u64(counter, 0); });
	slot->reset_at = now;
}

void
forget_kept()
{
	each_slot(MyDatabaseId, [](QueueSlot *slot) {
		pg_atomic_write_u64(&slot->counted_at, 0);
		forget_in_flight(&slot->in_flight);
	});
}

void
ask_to_leave(DatabaseSlot *slot)
{
	pg_atomic_exchange_u32(&slot->leave, 1);
	wake_process(pg_atomic_read_u32(&slot->worker));
}

void
wake_process(uint32 process)
{
	if (process != 0)
		SetLatch(&GetPGProcByNumber(process - 1)->procLatch);
}

} // namespace outbox
