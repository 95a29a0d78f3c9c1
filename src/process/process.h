// What the background processes (launcher, worker, maintenance) have in common: how they
// are started, how they connect, what they say of themselves.
//
// Guarantees: nothing set for a role or a database reaches them (timeouts, isolation,
// read-only, search_path, role); none of them runs during recovery or pg_upgrade; what
// they report is readable while they live and after.
#pragma once

#include "commit/shared.h"

namespace outbox {

// Called while the library is preloaded.
void register_launcher();

// Starts a process for a database: 'worker' or 'maintenance'. nullptr when all background
// worker slots of the server are in use.
BackgroundWorkerHandle *start_process(const char *kind, Oid database);

// Signal handlers and session of a process. InvalidOid: shared catalogs only.
void connect_process(Oid database);

// Claims a report, under the lock: false when a live process has it.
bool begin_status(ProcessStatus *report);
void end_status(ProcessStatus *report);
// Of what it does again and again.
int most_failures(const ProcessStatus *report);
void set_activity(ProcessStatus *report, Activity activity);
void set_error(ProcessStatus *report, const char *message);
// Changes a report's numbers under the lock.
template <typename Change>
void
change_status(ProcessStatus *report, const Change &change)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	change(report);
	LWLockRelease(shared->lock);
}

// The lock_timeout of a process, unless it sets another one.
constexpr char usual_lock_timeout[] = "50ms";

// In a transaction: what this database holds.
Finding find_extension();

// In a transaction: a restore or a subscription seems to be filling the tables, so that
// rows and partitions of ours would be in its way.
bool is_being_filled();

// A pause that grows with failures in a row, microseconds.
int64 pause_us(int failures);

// A clock that never steps, microseconds.
inline int64
steady_us()
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	return static_cast<int64>(INSTR_TIME_GET_MICROSEC(now));
}

// The same in milliseconds, rounded up so as not to wake too early; an hour at most, which
// the timeouts' type can hold.
inline long
whole_ms(int64 us)
{
	return static_cast<long>((Min(us, USECS_PER_HOUR) + 999) / 1000);
}

// Until this process' latch is set, or us have passed; less than 0 = no end. Interrupts are
// left to the caller.
void wait_for_latch(int64 us);

// Sleeps until the latch is set or us have passed; less than 0 = until the latch is set.
// True when the configuration was read anew.
bool sleep_process(int64 us);

} // namespace outbox
