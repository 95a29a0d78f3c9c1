// What all sessions of the server and the background workers share: wake flags, timers,
// counters, and what the workers say of themselves.
//
// Guarantees: it is a cache. A crash or a full table delays a wake-up or loses a count, never a
// message. Slots of databases and queues are found and made under a lock, which may wait and
// fail. A commit then uses only single atomic operations on them, which can do neither.
//
// Without preloading there is no shared memory: shared == nullptr.
#pragma once

#include "commit/announced.h"
#include "commit/floor.h"
#include "commit/in_flight.h"
#include "commit/refused_reports.h"
#include "commit/spending.h"
#include "commit/waiters.h"
#include "server/pg.h"
#include "server/settings.h"

namespace outbox {

// What is counted per queue, in the order of the columns of outbox.stats.
enum class Counter {
	enqueued,
	duplicates,
	claim_batches,
	claimed,
	dispatched,
	failed,
	retryable,
	zombie_requeue,
	leases_lost,
	repaired,
	cancelled,
	released,
	notified,
	optimistic,
	optimistic_delivered,
	optimistic_retried,
	optimistic_failed,
	optimistic_lost,
	limited,
	latency_sum_ms
};
constexpr int counters = static_cast<int>(Counter::latency_sum_ms) + 1;

// What a queue holds, kept up to date by each commit once it was counted (upkeep/recount.h).
enum class Kept { pending, leased, dead, waiting };
constexpr int kept_counts = static_cast<int>(Kept::waiting) + 1;

// Upper bounds of the buckets; one more holds what is above.
constexpr int64 latency_bounds_ms[] = {5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000};
constexpr int64 wakeup_bounds_us[] = {50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 100000, 1000000};
constexpr int latency_buckets = lengthof(latency_bounds_ms) + 1;
constexpr int wakeup_buckets = lengthof(wakeup_bounds_us) + 1;

// What a database of the launcher's list is known to hold.
enum class Finding : uint32 {
	unknown,         // look
	being_looked_at, // by a worker that has just started, or looks again
	absent,          // no extension
	other_version,   // one that this library does not serve
	present
};

enum class Activity : uint32 { stopped, off, running, waiting, in_trouble, left_alone };

constexpr int error_length = 512;

// The failures of one step of a process. It outlives the process: a later process that succeeds
// logs the end of the trouble.
struct Trouble {
	int failures; // in a row, of the process that lives
	bool told;    // the log knows
};
constexpr int most_troubles = 9;

// The status of a background process. Only the process writes it; others read it under the lock.
struct ProcessStatus {
	int pid; // 0 = not running
	Activity activity;
	TimestampTz since;        // of pid and activity
	TimestampTz next_wake;    // 0 = none
	char error[error_length]; // the last one
	TimestampTz error_at;     // 0 = none yet
	Trouble troubles[most_troubles];
	int64 starts;
	int64 wakeups;
	int64 notified;
	int64 repaired;
	int64 unrepaired; // at the last look
	int64 unrecorded; // refusals that found no place; in a copy
};

// A queue. The fields that each commit uses come first.
struct QueueSlot {
	pg_atomic_uint32 generation; // changes when the slot gets another queue
	pg_atomic_uint32 wake;       // something of it became claimable
	pg_atomic_uint64 woken_at;   // when wake was set
	pg_atomic_uint32 rouse;      // sessions that wait for it may have to be woken, without a notification
	pg_atomic_uint64 due_at;     // the earliest that was announced since the worker took it
	pg_atomic_uint32 dropped;
	pg_atomic_uint32 altered;       // how often its settings were changed
	pg_atomic_uint32 marked;        // outbox.key_marks may hold marks of it that are to be settled
	pg_atomic_uint32 key_refused;   // a claim found a key at its limit (taken_keys.h)
	pg_atomic_uint32 key_contended; // or another claim at it
	Oid database;                   // InvalidOid = free; this and the name change under the lock
	uint32 hash;
	char name[NAMEDATALEN];
	pg_atomic_uint64 counts[counters];
	pg_atomic_uint64 latency[latency_buckets];
	pg_atomic_uint64 wakeup_delay[wakeup_buckets];
	pg_atomic_uint64 wakeup_delay_sum_us;
	TimestampTz reset_at;
	pg_atomic_uint64 kept[kept_counts]; // signed; valid once counted_at is set
	pg_atomic_uint64 scheduled;         // at that time
	pg_atomic_uint64 counted_at;        // 0 = never
	InFlight in_flight;                 // its leases
	Spending spending;                  // of its rate
	Floor due_floors[priorities];       // of the index pending_due
	pg_atomic_uint64 turns[priorities]; // the fair_key from which the next claim goes on
};

// A process that runs handlers. idle: it ends in a moment unless it is called.
enum class Handles : uint32 { working, idle, called };

struct HandlerPlace {
	pg_atomic_uint32 process; // number of its PGPROC + 1; 0 = free
	pg_atomic_uint32 pid;
	pg_atomic_uint32 handles; // a Handles
};

struct DatabaseSlot {
	Oid database;                  // InvalidOid = free
	pg_atomic_uint32 finding;      // a Finding
	pg_atomic_uint32 worker;       // number of the live worker's PGPROC + 1; 0 = none
	pg_atomic_uint32 leave;        // the worker is asked to go
	pg_atomic_uint32 unstarted;    // no background worker slot was free
	pg_atomic_uint32 rouses;       // the worker wakes all who wait in time: they need not look themselves
	pg_atomic_uint32 went_round;   // the worker that was started last has completed a round
	pg_atomic_uint32 made_anew;    // the extension may have been made, or changed, since the server started
	pg_atomic_uint32 unhandled;    // a process that handles has left something
	pg_atomic_uint32 only_seals;   // what the maintenance process is started for
	pg_atomic_uint32 handler_turn; // which queue the next process that handles begins with
	pg_atomic_uint32 written;      // the OID of outbox.messages that was enqueued into; 0 = none yet
	pg_atomic_uint64 sleeps_until; // when the worker wakes
	pg_atomic_uint64 look_at;      // when the worker looks through all queues
	pg_atomic_uint64 expires_at;   // the earliest lease expiry that was announced
	pg_atomic_uint64 settle_at;    // marks are to be settled from then on
	pg_atomic_uint64 record_floor; // a copy (record_floor.h); 0 = read the sequence
	Floor lease_floor;             // of the index pending_lease
	ProcessStatus report;
	ProcessStatus maintenance;
	ProcessStatus handler; // of all that handle together
	HandlerPlace handlers[most_handler_workers];
	RefusedList refused;
};

// A build with stop points has few, so that a test can have more databases than slots.
#ifdef OUTBOX_STOP_POINTS
constexpr int database_slots = 4;
#else
constexpr int database_slots = 256;
#endif

struct Shared {
	LWLock *lock;                   // the list of slots, names, reports
	pg_atomic_uint32 launcher;      // number of its PGPROC + 1; 0 = none
	pg_atomic_uint32 news;          // databases were made, changed or dropped
	pg_atomic_uint32 slotless_news; // an extension was, in a database without a slot
	pg_atomic_uint64 short_at;      // steady clock: when a background worker slot was missing last
	ProcessStatus report;           // the launcher's
	DatabaseSlot databases[database_slots];
	int queue_slots;
	int queues_used; // the slots from this one on were never used
	QueueSlot queues[FLEXIBLE_ARRAY_MEMBER];
};

extern Shared *shared;

// Called while the library is preloaded.
void request_shared_memory();

// The slot of this session's database; nullptr when there is no room or no shared memory.
// Takes no lock: the slot belongs to our database while we are connected and the extension exists.
DatabaseSlot *my_database();
// The slot of any database. Only the launcher and its workers make slots.
DatabaseSlot *database_slot(Oid database, bool make);
void forget_database(Oid database);
// Frees the slots of its queues.
void forget_queues(Oid database);

// The slot of a queue, and the generation in which it belongs to the queue.
struct QueueRef {
	QueueSlot *slot; // nullptr = none
	uint32 generation;
};
inline QueueRef
ref_to(QueueSlot *slot)
{
	return {slot, slot != nullptr ? pg_atomic_read_u32(&slot->generation) : 0};
}
inline bool
is_still(const QueueRef &ref)
{
	return ref.slot != nullptr && pg_atomic_read_u32(&ref.slot->generation) == ref.generation;
}
// The slot of a queue of this database; made if there is none and make is true.
QueueRef queue_ref(const char *name, bool make = true);
inline int
slot_number(const QueueSlot *slot)
{
	return static_cast<int>(slot - shared->queues);
}

// The bit of a queue in the masks of waiting sessions; slot is nullptr if it has none.
inline QueueMask
mask_of(const QueueSlot *slot)
{
	return slot == nullptr ? every_queue : uint64{1} << (slot_number(slot) % 64);
}

// Each queue of a database that has a slot. Hold the lock if the list must not change.
template <typename Body>
void
each_slot(Oid database, const Body &body)
{
	for (int i = 0; shared != nullptr && i < shared->queues_used; i++)
		if (shared->queues[i].database == database)
			body(&shared->queues[i]);
}

inline bool
is_dropped(QueueSlot *slot)
{
	return pg_atomic_read_u32(&slot->dropped) != 0;
}

inline Finding
finding_of(DatabaseSlot *slot)
{
	return static_cast<Finding>(pg_atomic_read_u32(&slot->finding));
}
inline void
set_finding(DatabaseSlot *slot, Finding finding)
{
	pg_atomic_write_u32(&slot->finding, static_cast<uint32>(finding));
}

// Whether a worker runs for the database.
inline bool
is_running(const DatabaseSlot *slot)
{
	return slot->report.pid != 0;
}
void ask_to_leave(DatabaseSlot *slot);

// Sets the latch of a process by the number of its PGPROC + 1; 0 does nothing.
void wake_process(uint32 process);
inline bool
is_alive(DatabaseSlot *slot)
{
	return slot != nullptr && pg_atomic_read_u32(&slot->worker) != 0;
}

inline void
count(QueueSlot *slot, Counter counter, uint64 n)
{
	pg_atomic_fetch_add_u64(&slot->counts[static_cast<int>(counter)], static_cast<int64>(n));
}

void reset_counts(QueueSlot *slot, TimestampTz now);

inline int64
kept(QueueSlot *slot, Kept what)
{
	return static_cast<int64>(pg_atomic_read_u64(&slot->kept[static_cast<int>(what)]));
}
inline TimestampTz
counted_at(QueueSlot *slot)
{
	return static_cast<TimestampTz>(pg_atomic_read_u64(&slot->counted_at));
}
// A change that no commit announced: the totals are unknown until the next count.
void forget_kept();

// Which bucket a value falls into.
template <size_t n>
int
bucket(const int64 (&bounds)[n], int64 value)
{
	int i = 0;

	while (i < static_cast<int>(n) && value > bounds[i])
		i++;
	return i;
}

} // namespace outbox
