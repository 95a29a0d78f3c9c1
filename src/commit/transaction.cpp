// See transaction.h.

#include "commit/transaction.h"

#include "commit/taken_keys.h"
#include "commit/reservation.h"
#include "commit/notes.h"
#include "commit/rate_limit.h"
#include "commit/waiters.h"
#include "rows/probe.h"
#include "server/settings.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// The rest is for transactions that commit between the check and the NOTIFY.
constexpr double fullest_queue = 0.95;

bool
has_room_to_notify()
{
	if (notification_queue_usage() < fullest_queue)
		return true;
	ereport(
		WARNING,
		(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
		 errmsg("workers are not notified of new messages: the notification queue of the server is full"),
		 errdetail("A listening session stays in a transaction, or has not read its notifications for a long time."),
		 errhint(
			 "Workers find the messages at their next claim. With a background worker producers do not send notifications.")));
	return false;
}

bool
has_claimable(TimestampTz now)
{
	for (const Note *note = notes.first; note != nullptr; note = note->next)
		if (note->due_at <= now)
			return true;
	return false;
}

// Before the commit, which may still fail: without a live worker the transaction notifies the
// listeners. The server drops equal notifications of one transaction. If its queue is full, a
// NOTIFY would fail the producer's commit: then no listener is notified.
void
tell_listeners()
{
	TimestampTz now;

	if (notes.first == nullptr || is_alive(notes.database))
		return;
	now = GetCurrentTimestamp();
	if (has_claimable(now) && !everything_is_held() && has_room_to_notify())
		for (Note *note = notes.first; note != nullptr; note = note->next)
			if (note->due_at <= now)
				Async_Notify("outbox_pending", note->queue);
	notes.told_listeners = true;
}

// Before the commit; the setting ends with the transaction. XactLastRecEnd moves with each record
// that this process writes, also in a savepoint that is rolled back.
void
commit_leases_asynchronously()
{
	if (notes.leases_end == InvalidXLogRecPtr || !wrote_only_leases() || !leases_commit_asynchronously() ||
		synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		return;
	set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

void
add_counts(const Note *note)
{
	QueueSlot *slot = note->ref.slot;

	for (int i = 0; i < counters; i++)
		if (note->counts[i] != 0)
			pg_atomic_fetch_add_u64(&slot->counts[i], note->counts[i]);
	for (int i = 0; i < latency_buckets; i++)
		if (note->latency[i] != 0)
			pg_atomic_fetch_add_u64(&slot->latency[i], note->latency[i]);
	for (int i = 0; i < kept_counts; i++)
		if (note->kept[i] != 0)
			pg_atomic_fetch_add_u64(&slot->kept[i], note->kept[i]);
}

void
announce_to_worker(pg_atomic_uint64 *earliest, TimestampTz time)
{
	if (time == DT_NOEND)
		return;
	announce(earliest, time);
	if (time < announced(&notes.database->sleeps_until))
		wake_worker();
}

void
tell_worker_of(const Note *note, TimestampTz now)
{
	QueueSlot *slot = note->ref.slot;

	if (is_still(note->ref))
	{
		if (note->dropped && note->made_again)
			reset_counts(slot, now);
		add_counts(note);
		// Before the flag: who takes it looks at the settings again.
		if (note->altered)
			pg_atomic_fetch_add_u32(&slot->altered, 1);
		if (settle_leases(note) && !notes.told_listeners)
			raise_flag(slot);
		if (note->key_freed && !notes.told_listeners)
			wake_refused(slot);
		if (note->due_at <= now && !notes.told_listeners)
			raise_flag(slot);
		// The flag covers what has fallen due since.
		announce_to_worker(&slot->due_at, note->due_later <= now ? now + 1 : note->due_later);
		if (note->marked)
			pg_atomic_write_u32(&slot->marked, 1);
		if (note->turn_passed && pg_atomic_read_u32(&slot->marked) != 0)
			announce_to_worker(&notes.database->settle_at, now);
		if (note->dropped && !note->made_again)
			pg_atomic_write_u32(&slot->dropped, 1);
		// A queue of that name may have another slot, or none.
		if (note->dropped)
			wake_all(mask_of(slot));
		// If the slot has passed to another queue, the flag may be lost.
		if (is_still(note->ref))
			return;
	}
	announce_to_worker(&notes.database->look_at, note->due_at);
}

// After the commit, where the rows are visible. Atomic operations only.
void
tell_worker()
{
	TimestampTz now;

	if (notes.database == nullptr)
		return;
	OUTBOX_STOP_POINT("commit_before_flag");
	now = GetCurrentTimestamp();
	for (const Note *note = notes.first; note != nullptr; note = note->next)
	{
		if (note->counts[static_cast<int>(Counter::enqueued)] != 0 && OidIsValid(notes.written))
			pg_atomic_write_u32(&notes.database->written, notes.written);
		tell_worker_of(note, now);
	}
	announce_to_worker(&notes.database->expires_at, notes.expires_at);
}

// If this database has no slot, or another database is taking it, the launcher looks at all
// databases without slots.
void
have_extension_looked_for()
{
	DatabaseSlot *slot = my_database();

	if (slot != nullptr)
	{
		set_finding(slot, Finding::unknown);
		if (notes.made_anew)
		{
			pg_atomic_write_u32(&slot->written, InvalidOid);
			pg_atomic_write_u32(&slot->made_anew, 1);
			// Another sequence, perhaps.
			pg_atomic_write_u64(&slot->record_floor, 0);
		}
		have_all_looked_at();
		pg_memory_barrier();
	}
	if (slot == nullptr || slot->database != MyDatabaseId)
		pg_atomic_write_u32(&shared->slotless_news, 1);
}

void
tell_launcher()
{
	if (!notes.news || shared == nullptr)
		return;
	if (notes.news_of_extension)
		have_extension_looked_for();
	pg_atomic_write_u32(&shared->news, 1);
	pg_memory_barrier();
	wake_process(pg_atomic_read_u32(&shared->launcher));
}

// The levels from there on are rolled back. What others may claim again they have passed over, and what this session
// was woken for it will not look for.
void
rouse_others(int level)
{
	QueueMask queues = waits_at_level() >= level ? stop_waiting(0) : 0;

	for (const Note *note = notes.first; note != nullptr; note = note->next)
		if (note->level >= level && note->removed && is_still(note->ref))
			queues |= mask_of(note->ref.slot);
	rouse(queues);
}

void
act_at(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			tell_listeners();
			commit_leases_asynchronously();
			if (notes.first != nullptr)
				OUTBOX_STOP_POINT("after_pre_commit");
			break;
		case XACT_EVENT_COMMIT:
			lower_floors();
			tell_worker();
			tell_launcher();
			break;
		case XACT_EVENT_ABORT:
			give_leases_back(0);
			give_rate_back(0);
			give_keys_back(0);
			rouse_others(1);
			tell_launcher();
			break;
		case XACT_EVENT_PREPARE:
			forget_leases_in_flight();
			break;
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

void
at_transaction_event(XactEvent event, void *)
{
	act_at(event);
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	give_up_raising();
	forget_pins();
	forget_entries();
	forget_notes();
}

void
at_subtransaction_event(SubXactEvent event, SubTransactionId, SubTransactionId, void *)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		give_up_raising();
		forget_pins();
		rouse_others(GetCurrentTransactionNestLevel());
	}
	if (notes.first == nullptr)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		give_leases_back(GetCurrentTransactionNestLevel());
		give_rate_back(GetCurrentTransactionNestLevel());
		give_keys_back(GetCurrentTransactionNestLevel());
		forget_notes_from(GetCurrentTransactionNestLevel());
	}
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_notes_up(GetCurrentTransactionNestLevel());
}

void
note_kept(const Entry &entry, int more)
{
	Note *note;
	auto add = [&](Kept what) { note->kept[static_cast<int>(what)] += more; };

	if (shared == nullptr)
		return;
	note = note_of(entry.queue);
	note->removed |= more < 0;
	add(Kept::pending);
	if (entry.leased)
	{
		see_leases_in_flight(note);
		add(Kept::leased);
	}
	else if (entry.held_back)
		add(Kept::waiting);
}

} // namespace

double
notification_queue_usage()
{
	return DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, static_cast<Datum>(0)));
}

void
note_due(const text *queue, TimestampTz at, TimestampTz now)
{
	Note *note = note_of(queue);

	note->due_at = Min(note->due_at, at);
	// A delay of zero counts from a clock that was read later than the call's.
	if (at > now && at > GetCurrentTimestamp())
		note->due_later = Min(note->due_later, at);
}

void
note_expiry(TimestampTz at)
{
	if (shared == nullptr)
		return;
	if (notes.database == nullptr)
		notes.database = my_database();
	notes.expires_at = Min(notes.expires_at, at);
}

void
note_count(const text *queue, Counter counter, int64 n)
{
	if (shared != nullptr && n != 0)
		note_of(queue)->counts[static_cast<int>(counter)] += n;
}

void
note_made(const Entry &entry)
{
	remember_made(entry);
	note_kept(entry, 1);
}

void
note_removed(const Entry &entry)
{
	remember_removed(entry);
	note_kept(entry, -1);
}

void
note_dead(const text *queue, int more)
{
	if (shared != nullptr)
		note_of(queue)->kept[static_cast<int>(Kept::dead)] += more;
}

void
note_turn(const text *queue, bool marked)
{
	Note *note;

	if (shared == nullptr)
		return;
	note = note_of(queue);
	note->turn_passed = true;
	note->marked |= marked;
}

void
note_latency(const text *queue, int ms)
{
	Note *note;

	if (shared == nullptr)
		return;
	note = note_of(queue);
	note->counts[static_cast<int>(Counter::latency_sum_ms)] += ms;
	note->latency[bucket(latency_bounds_ms, ms)]++;
}

bool
is_first_enqueue()
{
	DatabaseSlot *slot = my_database();

	return slot != nullptr && pg_atomic_read_u32(&slot->written) == InvalidOid;
}

void
note_first_enqueue(Oid messages)
{
	notes.written = messages;
}

void
note_dropped(const text *queue)
{
	Note *note;

	if (shared == nullptr)
		return;
	note = note_of(queue);
	note->dropped = true;
	note->made_again = false;
}

void
note_created(const text *queue)
{
	if (shared != nullptr)
		note_of(queue)->made_again = note_of(queue)->altered = true;
}

void
note_altered(const text *queue)
{
	if (shared != nullptr)
		note_of(queue)->altered = true;
}

bool
wrote_only_leases()
{
	return XactLastRecEnd == notes.leases_end;
}

void
note_leases()
{
	notes.leases_end = XactLastRecEnd;
}

void
have_all_looked_at()
{
	DatabaseSlot *slot = my_database();

	if (slot == nullptr)
		return;
	announce(&slot->look_at, 0);
	wake_process(pg_atomic_read_u32(&slot->worker));
}

void
note_news(bool of_extension)
{
	notes.news = true;
	notes.news_of_extension |= of_extension;
}

void
note_made_anew()
{
	notes.made_anew = true;
}

void
follow_transactions()
{
	RegisterXactCallback(at_transaction_event, nullptr);
	RegisterSubXactCallback(at_subtransaction_event, nullptr);
	follow_key_locks();
}

} // namespace outbox
