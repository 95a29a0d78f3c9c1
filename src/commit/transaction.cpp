// See transaction.h. What is noted carries the nesting level that noted it.

#include "commit/transaction.h"

#include "commit/waiters.h"
#include "rows/probe.h"
#include "server/settings.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

struct Note {
	Note *next;
	int level;
	QueueRef ref;          // none: no room in shared memory, or no shared memory
	TimestampTz due_at;    // the earliest
	TimestampTz due_later; // the earliest that was not due when it was noted
	bool dropped;          // the queue, at some time
	bool made_again;       // after that
	bool turn_passed;      // a key may have to go on
	bool marked;           // and a mark says which
	int64 counts[counters];
	int latency[latency_buckets];
	int64 kept[kept_counts]; // changes of these counts
	char queue[NAMEDATALEN];
};

// All in TopTransactionContext.
struct Notes {
	Note *first;
	DatabaseSlot *database;
	TimestampTz expires_at;
	bool told_listeners; // by this transaction itself
	Oid written;         // outbox.messages, if this may be the first enqueue into it
	bool news;
	bool news_of_extension;
	XLogRecPtr leases_end; // of the transaction's WAL, if all of it is of leases
};

constexpr Notes nothing = {nullptr, nullptr, DT_NOEND, false, InvalidOid, false, false, InvalidXLogRecPtr};
Notes notes = nothing;

void
merge(Note *to, const Note *from)
{
	to->due_at = Min(to->due_at, from->due_at);
	to->due_later = Min(to->due_later, from->due_later);
	to->made_again = from->dropped ? from->made_again : to->made_again || from->made_again;
	to->dropped |= from->dropped;
	to->turn_passed |= from->turn_passed;
	to->marked |= from->marked;
	for (int i = 0; i < counters; i++)
		to->counts[i] += from->counts[i];
	for (int i = 0; i < latency_buckets; i++)
		to->latency[i] += from->latency[i];
	for (int i = 0; i < kept_counts; i++)
		to->kept[i] += from->kept[i];
}

Note *
find_note(const char *queue, size_t length, int level)
{
	for (Note *note = notes.first; note != nullptr; note = note->next)
		if (note->level == level && strncmp(note->queue, queue, length) == 0 && note->queue[length] == '\0')
			return note;
	return nullptr;
}

Note *
note_of(const text *queue)
{
	int level = GetCurrentTransactionNestLevel();
	size_t length = Min(VARSIZE_ANY_EXHDR(queue), NAMEDATALEN - 1);
	Note *note = find_note(VARDATA_ANY(queue), length, level);

	if (note != nullptr)
		return note;
	note = static_cast<Note *>(MemoryContextAllocZero(TopTransactionContext, sizeof(Note)));
	memcpy(note->queue, VARDATA_ANY(queue), length);
	note->level = level;
	note->due_at = note->due_later = DT_NOEND;
	note->ref = queue_ref(note->queue);
	notes.database = my_database();
	note->next = notes.first;
	notes.first = note;
	return note;
}

void
forget_from(int level)
{
	Note **link = &notes.first;

	while (*link != nullptr)
	{
		Note *note = *link;

		if (note->level < level)
		{
			link = &note->next;
			continue;
		}
		*link = note->next;
		pfree(note);
	}
}

// A subtransaction commits: its notes pass to the parent.
void
hand_up(int level)
{
	Note **link = &notes.first;

	while (*link != nullptr)
	{
		Note *note = *link;
		Note *parents = note->level >= level ? find_note(note->queue, strlen(note->queue), level - 1) : nullptr;

		if (parents != nullptr)
		{
			merge(parents, note);
			*link = note->next;
			pfree(note);
			continue;
		}
		note->level = Min(note->level, level - 1);
		link = &note->next;
	}
}

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

// The worker looks at what its own transactions announced before it sleeps.
void
wake_worker()
{
	uint32 process = pg_atomic_read_u32(&notes.database->worker);

	if (process != process_number() + 1)
		wake_process(process);
}

// The worker takes the flag before it notifies: a flag that is raised after that leads to another
// notification.
void
raise_flag(QueueSlot *slot)
{
	if (pg_atomic_read_u32(&slot->wake) == 0)
		pg_atomic_write_u64(&slot->woken_at, static_cast<uint64>(GetCurrentTimestamp()));
	if (pg_atomic_exchange_u32(&slot->wake, 1) == 0)
		wake_worker();
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
		pg_atomic_write_u32(&slot->written, InvalidOid);
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
			tell_launcher();
			break;
		case XACT_EVENT_PREPARE:
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
	if (event == XACT_EVENT_ABORT)
		wait_no_more();
	forget_entries();
	notes = nothing;
}

void
at_subtransaction_event(SubXactEvent event, SubTransactionId, SubTransactionId, void *)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		give_up_raising();
		forget_pins();
	}
	if (notes.first == nullptr)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_from(GetCurrentTransactionNestLevel());
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_up(GetCurrentTransactionNestLevel());
}

void
note_kept(const text *queue, Kept what, int more)
{
	Note *note;

	if (shared == nullptr)
		return;
	note = note_of(queue);
	note->kept[static_cast<int>(what)] += more;
}

void
note_kept_entry(const Entry &entry, int more)
{
	note_kept(entry.queue, Kept::pending, more);
	if (entry.leased)
		note_kept(entry.queue, Kept::leased, more);
	else if (entry.held_back)
		note_kept(entry.queue, Kept::waiting, more);
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
	note_kept_entry(entry, 1);
}

void
note_removed(const Entry &entry)
{
	remember_removed(entry);
	note_kept_entry(entry, -1);
}

void
note_dead(const text *queue, int more)
{
	note_kept(queue, Kept::dead, more);
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
		note_of(queue)->made_again = true;
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
follow_transactions()
{
	RegisterXactCallback(at_transaction_event, nullptr);
	RegisterSubXactCallback(at_subtransaction_event, nullptr);
}

} // namespace outbox
