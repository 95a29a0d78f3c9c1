// See entries.h.

#include "commit/entries.h"

#include "commit/shared.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// What this transaction made and removed in one queue.
struct Entries {
	Entries *next;
	QueueRef ref;
	char queue[NAMEDATALEN];
	TimestampTz made[priorities];
	TimestampTz removed[priorities];
};

// In TopTransactionContext.
Entries *all_entries;
TimestampTz lease_made = DT_NOEND;
TimestampTz lease_removed = DT_NOEND;

Entries *
find_entries(const text *queue)
{
	size_t length = Min(VARSIZE_ANY_EXHDR(queue), NAMEDATALEN - 1);

	for (Entries *entries = all_entries; entries != nullptr; entries = entries->next)
		if (strncmp(entries->queue, VARDATA_ANY(queue), length) == 0 && entries->queue[length] == '\0')
			return entries;
	return nullptr;
}

Entries *
entries_of(const text *queue)
{
	Entries *entries = find_entries(queue);

	if (entries != nullptr)
		return entries;
	entries = static_cast<Entries *>(MemoryContextAllocZero(TopTransactionContext, sizeof(Entries)));
	memcpy(entries->queue, VARDATA_ANY(queue), Min(VARSIZE_ANY_EXHDR(queue), NAMEDATALEN - 1));
	for (int i = 0; i < priorities; i++)
		entries->made[i] = entries->removed[i] = DT_NOEND;
	entries->ref = queue_ref(entries->queue);
	entries->next = all_entries;
	all_entries = entries;
	return entries;
}

// Without the CHECK on priorities, which a user may drop, a row may have any.
bool
has_floor(const Entry &entry)
{
	return shared != nullptr && !entry.held_back && entry.priority >= 0 && entry.priority < priorities;
}

void
note_least(TimestampTz *least, TimestampTz key)
{
	*least = Min(*least, key);
}

// For a slot that was freed or passed to another queue: ours may have another slot now. A floor
// that is lowered too far only costs a walk.
void
lower_in_all(int priority, TimestampTz key)
{
	each_slot(MyDatabaseId, [&](QueueSlot *slot) { lower(&slot->due_floors[priority], key); });
}

void
lower_due_floors(const Entries *entries)
{
	for (int i = 0; i < priorities; i++)
	{
		if (entries->made[i] == DT_NOEND)
			continue;
		if (entries->ref.slot != nullptr)
			lower(&entries->ref.slot->due_floors[i], entries->made[i]);
		if (!is_still(entries->ref) || is_dropped(entries->ref.slot))
			lower_in_all(i, entries->made[i]);
	}
}

} // namespace

// If the slot has passed to another queue, this has read, and perhaps taken, the floor of that queue.
TimestampTz
begin_at_due_floor(FloorScan *scan, const QueueRef &ref, const text *queue, int priority)
{
	const Entries *entries = find_entries(queue);
	TimestampTz from =
		begin_at_floor(scan, &ref.slot->due_floors[priority], entries != nullptr ? entries->made[priority] : DT_NOEND,
					   entries != nullptr ? entries->removed[priority] : DT_NOEND);

	pg_read_barrier();
	if (is_still(ref))
		return from;
	leave_floor(scan);
	return DT_NOBEGIN;
}

TimestampTz
begin_at_lease_floor(FloorScan *scan)
{
	DatabaseSlot *database = my_database();

	return begin_at_floor(scan, database != nullptr ? &database->lease_floor : nullptr, lease_made, lease_removed);
}

TimestampTz
due_floor(const QueueRef &ref, const text *queue, int priority)
{
	const Entries *entries = find_entries(queue);
	TimestampTz at = floor_at(&ref.slot->due_floors[priority]);

	pg_read_barrier();
	if (!is_still(ref))
		return DT_NOBEGIN;
	return entries != nullptr ? Min(at, entries->made[priority]) : at;
}

TimestampTz
lease_floor()
{
	DatabaseSlot *database = my_database();

	return database != nullptr ? Min(floor_at(&database->lease_floor), lease_made) : DT_NOBEGIN;
}

void
remember_made(const Entry &entry)
{
	if (has_floor(entry))
		note_least(&entries_of(entry.queue)->made[entry.priority], claimable_at(entry));
	if (entry.leased)
		note_least(&lease_made, entry.lease_expires_at);
}

void
remember_removed(const Entry &entry)
{
	if (has_floor(entry))
		note_least(&entries_of(entry.queue)->removed[entry.priority], claimable_at(entry));
	if (entry.leased)
		note_least(&lease_removed, entry.lease_expires_at);
}

void
lower_floors()
{
	DatabaseSlot *database;

	if (all_entries != nullptr)
		OUTBOX_STOP_POINT("commit_before_lower");
	for (const Entries *entries = all_entries; entries != nullptr; entries = entries->next)
		lower_due_floors(entries);
	if (shared == nullptr || lease_made == DT_NOEND)
		return;
	database = my_database();
	if (database != nullptr)
		lower(&database->lease_floor, lease_made);
}

void
forget_entries()
{
	all_entries = nullptr;
	lease_made = lease_removed = DT_NOEND;
}

void
lower_all_floors()
{
	DatabaseSlot *database = my_database();

	for (int i = 0; shared != nullptr && i < priorities; i++)
		lower_in_all(i, DT_NOBEGIN);
	if (database != nullptr)
		lower(&database->lease_floor, DT_NOBEGIN);
}

} // namespace outbox
