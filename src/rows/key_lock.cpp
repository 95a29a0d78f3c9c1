// See key_lock.h.

#include "rows/key_lock.h"

namespace outbox {

void
lock_key(KeyLock *lock, Relation rel, const unsigned char *key, int size)
{
	uint64 bits = 0;

	for (int i = 0; i < Min(size, 6); i++)
		bits = bits << 8 | key[i];
	SET_LOCKTAG_OBJECT(lock->tag, MyDatabaseId, RelationGetRelid(rel), static_cast<uint32>(bits >> 16),
					   static_cast<uint16>(bits));
	expect_no_pins();
	LockAcquire(&lock->tag, ExclusiveLock, false, false);
}

void
unlock_key(const KeyLock *lock)
{
	LockRelease(&lock->tag, ExclusiveLock, false);
}

bool
look_up_latched(Probe *probe, ScanKey keys, int nkeys, ScanDirection direction, KeyLock *held, const unsigned char *key,
				int size)
{
	for (;;)
	{
		ItemPointerData tid;
		TransactionId other;
		bool found;

		// Here no key is latched: those who take many are interrupted between two of them.
		CHECK_FOR_INTERRUPTS();
		start_probe(probe, keys, nkeys);
		lock_key(held, probe->heap, key, size);
		found = next_row(probe, direction);
		other = found ? (TransactionIdIsValid(probe->inserter()) ? probe->inserter() : probe->changer())
					  : InvalidTransactionId;
		if (!TransactionIdIsValid(other))
			return found;
		unlock_key(held);
		tid = probe->slot->tts_tid;
		rest_probe(probe);
		expect_no_pins();
		XactLockTableWait(other, probe->heap, &tid, XLTW_InsertIndex);
	}
}

} // namespace outbox
