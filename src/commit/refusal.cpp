// See refusal.h.

#include "commit/refusal.h"

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

void
let_go_of_keys(QueueSlot *slot)
{
	if (slot != nullptr && pg_atomic_exchange_u32(&slot->key_contended, 0) != 0)
		raise_flag(slot);
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
