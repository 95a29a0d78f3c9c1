// See taken_keys.h.

#include "commit/taken_keys.h"

namespace outbox {

bool
announce_full_key(QueueSlot *slot)
{
	return slot != nullptr && pg_atomic_exchange_u32(&slot->key_refused, 1) == 0;
}

void
announce_contended_key(QueueSlot *slot)
{
	if (slot != nullptr)
		pg_atomic_exchange_u32(&slot->key_contended, 1);
}

namespace {

// The queue a key of which this session has locked, and the nesting level of transactions.
QueueSlot *locked_queue;
int locked_at;

// The locks are gone by now, which at the events of transactions they are not.
void
at_release(ResourceReleasePhase phase, bool is_commit, bool, void *)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && !is_commit && locked_at >= GetCurrentTransactionNestLevel())
		let_go_of_keys(locked_queue);
}

} // namespace

void
note_key_locked(QueueSlot *slot)
{
	locked_queue = slot;
	locked_at = GetCurrentTransactionNestLevel();
}

// A claim that has locked no key wakes no session: it would only wake itself.
void
let_go_of_keys(QueueSlot *slot)
{
	bool locked = locked_at > 0;

	locked_at = 0;
	if (locked && slot != nullptr && pg_atomic_exchange_u32(&slot->key_contended, 0) != 0)
		raise_flag(slot);
}

void
follow_key_locks()
{
	RegisterResourceReleaseCallback(at_release, nullptr);
}

void
note_key_taken(const text *queue)
{
	if (shared != nullptr)
		note_of(queue)->key_taken = true;
}

void
note_key_freed(const text *queue)
{
	if (shared != nullptr)
		note_of(queue)->key_freed = true;
}

void
wake_refused(QueueSlot *slot)
{
	if (pg_atomic_read_u32(&slot->key_refused) != 0 && pg_atomic_exchange_u32(&slot->key_refused, 0) != 0)
		raise_flag(slot);
}

void
give_keys_back(int level)
{
	for (const Note *note = notes.first; note != nullptr; note = note->next)
		if (note->level >= level && note->key_taken && is_still(note->ref))
			wake_refused(note->ref.slot);
}

} // namespace outbox
