// Keys that a claim finds taken: they have as many leases as max_in_flight_per_key allows, or another claim is at them.
// Sessions that wait are woken when such a key is free.
//
// Guarantee: a claim that announces a taken key, and then still finds it taken, is woken by the transaction that frees
// it, or by the claim that lets go of it. Nothing else depends on it: it is a cache, as all of shared memory.
#pragma once

#include "commit/notes.h"

namespace outbox {

// ---- claiming; slot may be nullptr

// False: it was announced before.
bool announce_full_key(QueueSlot *slot);
void announce_contended_key(QueueSlot *slot);
// The claim has locked a key. If it fails, it lets go of its keys when its locks are released.
void note_key_locked(QueueSlot *slot);
// The claim has let go of its keys.
void let_go_of_keys(QueueSlot *slot);
// A lease of a key with a limit is made; one ends.
void note_key_taken(const text *queue);
void note_key_freed(const text *queue);

// ---- transactions (transaction.h)

// Leases of keys of the queue have ended.
void wake_refused(QueueSlot *slot);
// The levels from there on are rolled back.
void give_keys_back(int level);
// When the library is loaded.
void follow_key_locks();

} // namespace outbox
