// Takes a key that only one transaction may have: for idempotency keys, numbers per key, replays
// and queues.
//
// Guarantees: of any number of sessions that want one key at once, exactly one inserts
// it; the others wait for the end of its transaction, open or prepared, and then
// see its outcome, in every isolation level. The uncommitted row is the lock: it
// needs no entry in the shared lock table, however many keys a transaction takes.
//
// Shape: no other session may insert between the look-up and the insertion. A heavyweight lock
// on 48 bits of the key covers only these two steps. It is never held while waiting for
// a transaction, so two keys that share it delay each other by microseconds at most, and
// taking it cannot deadlock.
#pragma once

#include "rows/probe.h"
#include "rows/table.h"

namespace outbox {

// Held from the look-up to the insertion.
struct KeyLock {
	LOCKTAG tag;
};
// False: another session holds it, and wait is never.
bool lock_key(KeyLock *lock, Relation rel, const unsigned char *key, int size, Wait wait = Wait::for_row);
void unlock_key(const KeyLock *lock);

// The current row of the key in probe->slot: the first in the given direction. Locks the key and looks,
// without waiting for a transaction. busy: an open transaction inserts or removes the row, and the lock is
// not held. Wait::never: also if another session holds the lock.
enum class KeyLook { free, taken, busy };
KeyLook lock_and_look(Probe *probe, ScanKey keys, int nkeys, ScanDirection direction, KeyLock *held,
					  const unsigned char *key, int size, Wait wait = Wait::for_row);

// The same, after all such transactions have ended: it waits for them without the lock, and processes
// interrupts. True if there is a row, false if the key is free. Wait::never: 55P03 instead of waiting, so it waits for
// nothing at all.
bool look_up_latched(Probe *probe, ScanKey keys, int nkeys, ScanDirection direction, KeyLock *held,
					 const unsigned char *key, int size, Wait wait = Wait::for_row);

} // namespace outbox
