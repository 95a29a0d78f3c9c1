// See notes.h.

#include "commit/notes.h"

namespace outbox {

constexpr Notes nothing = {nullptr, nullptr, DT_NOEND, false, InvalidOid, false, false, false, InvalidXLogRecPtr};
Notes notes = nothing;

namespace {

void
merge(Note *to, const Note *from)
{
	to->due_at = Min(to->due_at, from->due_at);
	to->due_later = Min(to->due_later, from->due_later);
	to->made_again = from->dropped ? from->made_again : to->made_again || from->made_again;
	to->dropped |= from->dropped;
	to->altered |= from->altered;
	to->turn_passed |= from->turn_passed;
	to->marked |= from->marked;
	to->removed |= from->removed;
	to->key_taken |= from->key_taken;
	to->key_freed |= from->key_freed;
	for (int i = 0; i < counters; i++)
		to->counts[i] += from->counts[i];
	for (int i = 0; i < latency_buckets; i++)
		to->latency[i] += from->latency[i];
	for (int i = 0; i < kept_counts; i++)
		to->kept[i] += from->kept[i];
	if (!to->saw_in_flight)
		to->in_flight_generation = from->in_flight_generation;
	else if (from->saw_in_flight && to->in_flight_generation != from->in_flight_generation)
		to->in_flight_generation = 0;
	to->saw_in_flight |= from->saw_in_flight;
	to->reserved += from->reserved;
	to->reserving += from->reserving;
	to->spent = core::both(to->spent, from->spent);
}

Note *
find_note(const char *queue, size_t length, int level)
{
	for (Note *note = notes.first; note != nullptr; note = note->next)
		if (note->level == level && strncmp(note->queue, queue, length) == 0 && note->queue[length] == '\0')
			return note;
	return nullptr;
}

} // namespace

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
forget_notes_from(int level)
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
hand_notes_up(int level)
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

void
forget_notes()
{
	notes = nothing;
}

// The worker looks at what its own transactions announced before it sleeps.
void
wake_worker()
{
	DatabaseSlot *database = my_database();
	uint32 process = database != nullptr ? pg_atomic_read_u32(&database->worker) : 0;

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
rouse(QueueMask queues)
{
	DatabaseSlot *database = my_database();
	bool is_news = false;

	if (queues == 0 || database == nullptr)
		return;
	each_slot(MyDatabaseId, [&](QueueSlot *slot) {
		if ((mask_of(slot) & queues) != 0)
			is_news |= pg_atomic_exchange_u32(&slot->rouse, 1) == 0;
	});
	if (is_news)
		wake_process(pg_atomic_read_u32(&database->worker));
}

} // namespace outbox
