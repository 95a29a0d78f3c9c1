// The launcher: starts and keeps a worker in each database that has the extension.
//
// Guarantees: at its start and every outbox.discovery_interval it scans each database, by a worker
// that ends if the extension is missing. CREATE, ALTER and DROP EXTENSION and commands on databases
// notify it at once. It restarts a worker that ended, after a pause that grows if the worker did not
// run long. It starts no worker for a database that a command has locked to drop, rename, move or
// copy it. It logs a missing worker slot once and tries again.
//
// Shape: it is connected to no database. Its memory is a cache: a new launcher finds running workers
// by their status.

#include "process/process.h"
#include "server/boundary.h"
#include "server/settings.h"
#include "process/step.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

constexpr int64 long_life_us = 10 * USECS_PER_SEC;
constexpr int64 longest_pause_after_work_us = 2 * USECS_PER_SEC;
constexpr int64 locked_pause_us = 250 * 1000;
// Slots that come and go count as one shortage.
constexpr int64 slots_free_after_us = 5 * USECS_PER_SEC;
constexpr int64 longest_slot_pause_us = 3 * USECS_PER_SEC;

// A database as the launcher follows it.
struct Followed {
	Oid database;
	char name[NAMEDATALEN];
	bool listed; // by pg_database, this time
	bool wanted;
	bool absent;                    // the extension, when this database lost its slot
	BackgroundWorkerHandle *handle; // of the worker that was started last
	int64 started_at;               // steady clock
	int64 retry_at;                 // steady clock
	int failures;
	bool told_version;
};

struct Launcher {
	MemoryContext context; // of the list
	List *followed;
	int64 next_discovery; // steady clock
	bool without_slots;   // the log knows
	int64 lacked_slot_at; // steady clock, the last time
	int slot_failures;
	bool told_crowded;
	Step listing;
};

Launcher launcher;

Followed *
find_followed(Oid database)
{
	ListCell *cell;

	foreach (cell, launcher.followed)
		if (static_cast<Followed *>(lfirst(cell))->database == database)
			return static_cast<Followed *>(lfirst(cell));
	return nullptr;
}

Followed *
follow(Oid database)
{
	Followed *followed = find_followed(database);
	MemoryContext previous;

	if (followed != nullptr)
		return followed;
	previous = MemoryContextSwitchTo(launcher.context);
	followed = static_cast<Followed *>(palloc0(sizeof(Followed)));
	followed->database = database;
	launcher.followed = lappend(launcher.followed, followed);
	MemoryContextSwitchTo(previous);
	return followed;
}

// ---- which databases there are

void
list_database(Form_pg_database database)
{
	Followed *followed = follow(database->oid);

	strlcpy(followed->name, NameStr(database->datname), sizeof(followed->name));
	followed->listed = true;
	followed->wanted = database->datallowconn && !database->datistemplate && !database_is_broken(database) &&
					   is_wanted_database(followed->name);
}

void
list_databases()
{
	Relation rel = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, nullptr);
	HeapTuple tuple;

	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
		list_database(reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple)));
	table_endscan(scan);
	table_close(rel, AccessShareLock);
}

List *
slotted_databases()
{
	List *databases = NIL;

	for (const DatabaseSlot &slot : shared->databases)
		if (OidIsValid(slot.database))
			databases = lappend_oid(databases, slot.database);
	return databases;
}

void
refresh_databases()
{
	// A database with a slot is in the list, unless it was dropped, perhaps under an earlier launcher.
	List *known = slotted_databases();
	ListCell *cell;

	foreach (cell, launcher.followed)
		static_cast<Followed *>(lfirst(cell))->listed = false;
	if (!run_step(&launcher.listing, list_databases))
		return; // the previous list is used until the next try
	foreach (cell, launcher.followed)
	{
		Followed *followed = static_cast<Followed *>(lfirst(cell));

		if (followed->listed)
		{
			known = list_delete_oid(known, followed->database);
			continue;
		}
		known = list_append_unique_oid(known, followed->database);
		launcher.followed = foreach_delete_current(launcher.followed, cell);
		pfree(followed);
	}
	foreach (cell, known)
		forget_database(lfirst_oid(cell));
}

void
look_at_slotless()
{
	ListCell *cell;

	foreach (cell, launcher.followed)
		static_cast<Followed *>(lfirst(cell))->absent = false;
}

// Scans all databases without a worker again.
void
discover()
{
	ListCell *cell;

	launcher.next_discovery = steady_us() + discovery_interval_us();
	refresh_databases();
	look_at_slotless();
	foreach (cell, launcher.followed)
	{
		const Followed *followed = static_cast<const Followed *>(lfirst(cell));
		DatabaseSlot *slot = followed->wanted ? database_slot(followed->database, true) : nullptr;

		if (slot != nullptr && !is_running(slot))
			set_finding(slot, Finding::unknown);
	}
}

// ---- starting and ending workers

void
tell_version(Followed *followed, Finding finding)
{
	if (finding == Finding::other_version && !followed->told_version)
		ereport(
			LOG,
			(errmsg(
				 "outbox launcher: database \"%s\" has a version of the extension that this library does not support",
				 followed->name),
			 errhint("Use ALTER EXTENSION outbox UPDATE in that database.")));
	followed->told_version = finding == Finding::other_version;
}

// Only a database without the extension loses its slot.
Finding
finding_in(DatabaseSlot *slot)
{
	return slot != nullptr ? finding_of(slot) : Finding::absent;
}

// After the end of a worker. It has not failed if it found nothing to do, or was asked to leave.
void
worker_ended(Followed *followed, DatabaseSlot *slot)
{
	Finding finding = finding_in(slot);
	int64 now = steady_us();

	pfree(followed->handle);
	followed->handle = nullptr;
	tell_version(followed, finding);
	if (finding == Finding::absent || finding == Finding::other_version || pg_atomic_exchange_u32(&slot->leave, 0) != 0)
	{
		followed->failures = 0;
		followed->retry_at = 0;
		return;
	}
	followed->failures = now - followed->started_at >= long_life_us ? 1 : followed->failures + 1;
	// A worker that has completed a round was ended from outside: it restarts soon, each time.
	followed->retry_at = now + (pg_atomic_read_u32(&slot->went_round) != 0
									? Min(pause_us(followed->failures), longest_pause_after_work_us)
									: pause_us(followed->failures));
}

bool
has_ended(const Followed *followed)
{
	pid_t pid;

	return followed->handle != nullptr && GetBackgroundWorkerPid(followed->handle, &pid) == BGWH_STOPPED;
}

// A command that drops, renames, moves or copies a database holds a lock on it. A worker would wait for
// this lock and then not find the database.
bool
is_locked(Oid database)
{
	bool locked = false;
	ErrorData *error = in_transaction([&] {
		LOCKTAG tag;

		SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
		locked = LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
		if (!locked)
			LockRelease(&tag, RowExclusiveLock, false);
	});

	return locked || error != nullptr;
}

void
no_slot(Followed *followed)
{
	launcher.slot_failures++;
	note_shortage();
	followed->retry_at = steady_us() + Min(pause_us(launcher.slot_failures), longest_slot_pause_us);
	launcher.lacked_slot_at = steady_us();
	if (launcher.without_slots)
		return;
	launcher.without_slots = true;
	set_error(&shared->report, psprintf("no background worker slot is free for database \"%s\"", followed->name));
	ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				  errmsg("outbox launcher: no background worker slot is free for database \"%s\"", followed->name),
				  errdetail("Messages are still enqueued, claimed and completed; claim repairs expired leases."),
				  errhint("Increase max_worker_processes. The worker starts as soon as a slot is free.")));
}

void
start_worker(Followed *followed, DatabaseSlot *slot)
{
	MemoryContext previous;

	OUTBOX_STOP_POINT("launcher_before_start");
	if (is_locked(followed->database))
	{
		followed->retry_at = steady_us() + locked_pause_us;
		return;
	}
	pg_atomic_write_u32(&slot->leave, 0);
	pg_atomic_write_u32(&slot->went_round, 0);
	followed->started_at = steady_us();
	previous = MemoryContextSwitchTo(launcher.context);
	followed->handle = start_process("worker", followed->database);
	MemoryContextSwitchTo(previous);
	pg_atomic_write_u32(&slot->unstarted, followed->handle == nullptr);
	if (followed->handle == nullptr)
	{
		no_slot(followed);
		return;
	}
	launcher.slot_failures = 0;
}

// Returns the time until the next call.
int64
follow_slots()
{
	int64 left = launcher.lacked_slot_at + slots_free_after_us - steady_us();

	if (!launcher.without_slots || left > 0)
		return launcher.without_slots ? left : PG_INT64_MAX;
	launcher.without_slots = false;
	ereport(LOG, (errmsg("outbox launcher: background worker slots are free again")));
	return PG_INT64_MAX;
}

// A slot for another database. CREATE EXTENSION writes the finding and then checks the owner
// of the slot (transaction.cpp): one of the two notices the other.
void
take_slot(DatabaseSlot *slot)
{
	Followed *loser = find_followed(slot->database);

	OUTBOX_STOP_POINT("launcher_before_eviction");
	forget_database(slot->database);
	OUTBOX_STOP_POINT("launcher_after_eviction");
	pg_memory_barrier();
	if (loser != nullptr)
		loser->absent = finding_of(slot) == Finding::absent;
}

// A database that was not scanned yet may turn out to need no slot.
bool
is_crowded()
{
	for (DatabaseSlot &slot : shared->databases)
		if (finding_of(&slot) != Finding::present && finding_of(&slot) != Finding::other_version)
			return false;
	return true;
}

void
tell_crowded()
{
	if (launcher.told_crowded || !is_crowded())
		return;
	launcher.told_crowded = true;
	ereport(LOG, (errmsg("outbox launcher: no more than %d databases can have a worker", database_slots)));
}

// If all slots are taken, a database without the extension gives up its slot.
DatabaseSlot *
slot_for(const Followed *followed)
{
	bool needed = followed->wanted && !followed->absent;
	DatabaseSlot *slot = database_slot(followed->database, needed);

	for (int i = 0; slot == nullptr && needed && i < database_slots; i++)
	{
		DatabaseSlot *other = &shared->databases[i];

		if (finding_of(other) == Finding::absent && !is_running(other))
		{
			take_slot(other);
			slot = database_slot(followed->database, true);
		}
	}
	if (slot == nullptr && needed)
		tell_crowded();
	return slot;
}

// Brings one database closer to its wanted state. Returns the time until the next call. looking:
// another database is being scanned; they are scanned one at a time, because there may be many.
int64
tend(Followed *followed, bool *looking)
{
	DatabaseSlot *slot = slot_for(followed);
	Finding finding;
	int64 now;

	if (has_ended(followed))
		worker_ended(followed, slot);
	if (slot == nullptr)
		return PG_INT64_MAX;
	finding = finding_of(slot);
	if (!followed->wanted || !workers_wanted())
	{
		if (is_running(slot))
			ask_to_leave(slot);
		return is_running(slot) || followed->handle != nullptr ? USECS_PER_SEC : PG_INT64_MAX;
	}
	if (is_running(slot) || followed->handle != nullptr)
	{
		followed->told_version = followed->told_version && finding != Finding::present;
		*looking |= finding == Finding::unknown || finding == Finding::being_looked_at;
		return PG_INT64_MAX;
	}
	if (finding == Finding::absent || finding == Finding::other_version)
		return PG_INT64_MAX;
	now = steady_us();
	if (now < followed->retry_at)
		return followed->retry_at - now;
	if (finding != Finding::present && *looking)
		return USECS_PER_SEC; // the end of the other scan wakes us earlier
	start_worker(followed, slot);
	*looking |= followed->handle != nullptr;
	return followed->handle != nullptr ? PG_INT64_MAX : Max(followed->retry_at - steady_us(), 0);
}

int64
tend_all()
{
	bool looking = false;
	int64 us = PG_INT64_MAX;
	ListCell *cell;

	foreach (cell, launcher.followed)
		us = Min(us, tend(static_cast<Followed *>(lfirst(cell)), &looking));
	return us;
}

void
run_launcher_round()
{
	int64 us;

	if (pg_atomic_exchange_u32(&shared->news, 0) != 0 || is_retry_due(&launcher.listing))
		refresh_databases();
	if (pg_atomic_exchange_u32(&shared->slotless_news, 0) != 0)
		look_at_slotless();
	if (steady_us() >= launcher.next_discovery)
		discover();
	us = tend_all();
	us = Min(us, follow_slots());
	if (has_failed(&launcher.listing))
		us = Min(us, Max(launcher.listing.retry_at - steady_us(), 0));
	if (!workers_wanted())
		set_activity(&shared->report, Activity::off);
	else if (!has_failed(&launcher.listing))
		set_activity(&shared->report, Activity::running);
	if (workers_wanted())
		us = Min(us, Max(launcher.next_discovery - steady_us(), 0));
	shared->report.next_wake = us == PG_INT64_MAX ? 0 : GetCurrentTimestamp() + us;
	pgstat_report_activity(STATE_IDLE, workers_wanted() ? "watching the workers of databases" : "outbox.worker is off");
	if (sleep_process(us == PG_INT64_MAX ? -1 : us))
	{
		// A change of outbox.databases requires a new list.
		pg_atomic_write_u32(&shared->news, 1);
		launcher.next_discovery = Min(launcher.next_discovery, steady_us() + discovery_interval_us());
	}
	shared->report.wakeups++;
}

void
leave_launcher(int, Datum)
{
	pg_atomic_write_u32(&shared->launcher, 0);
	end_status(&shared->report);
}

} // namespace

OUTBOX_PROCESS(outbox_launcher_main)
{
	connect_process(InvalidOid);
	OUTBOX_STOP_POINT("launcher_before_attach");
	begin_status(&shared->report);
	clear_failures(&shared->report);
	launcher.listing = make_step(&shared->report, 0, "list the databases", usual_lock_timeout);
	shared->report.starts++;
	before_shmem_exit(leave_launcher, 0);
	launcher.context = AllocSetContextCreate(TopMemoryContext, "outbox launcher", ALLOCSET_DEFAULT_SIZES);
	launcher.next_discovery = steady_us();
	pg_atomic_exchange_u32(&shared->launcher, process_number() + 1);
	for (;;)
	{
		MemoryContext round = AllocSetContextCreate(launcher.context, "outbox launcher round", ALLOCSET_SMALL_SIZES);

		MemoryContextSwitchTo(round);
		run_launcher_round();
		MemoryContextSwitchTo(launcher.context);
		MemoryContextDelete(round);
	}
}

} // namespace outbox
