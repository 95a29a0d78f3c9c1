// See key_lock.h.

#include "rows/key_lock.h"

namespace outbox {

bool
lock_key(KeyLock *lock, Relation rel, const unsigned char *key, int size, Wait wait)
{
	uint64 bits = 0;

	for (int i = 0; i < Min(size, 6); i++)
		bits = bits << 8 | key[i];
	SET_LOCKTAG_OBJECT(lock->tag, MyDatabaseId, RelationGetRelid(rel), static_cast<uint32>(bits >> 16),
					   static_cast<uint16>(bits));
	expect_no_pins();
	return LockAcquire(&lock->tag, ExclusiveLock, false, wait == Wait::never) != LOCKACQUIRE_NOT_AVAIL;
}

void
unlock_key(const KeyLock *lock)
{
	LockRelease(&lock->tag, ExclusiveLock, false);
}

namespace {

// Who inserted the row that the probe stands on, or is changing it, if that is not settled.
TransactionId
holder(const Probe *probe)
{
	return TransactionIdIsValid(probe->inserter()) ? probe->inserter() : probe->changer();
}

[[noreturn]] void
raise_held(Relation rel)
{
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("another transaction holds a key of outbox.%s", RelationGetRelationName(rel))));
}

} // namespace

KeyLook
lock_and_look(Probe *probe, ScanKey keys, int nkeys, ScanDirection direction, KeyLock *held, const unsigned char *key,
			  int size, Wait wait)
{
	start_probe(probe, keys, nkeys);
	if (!lock_key(held, probe->heap, key, size, wait))
		return KeyLook::busy;
	if (!next_row(probe, direction))
		return KeyLook::free;
	if (!TransactionIdIsValid(holder(probe)))
		return KeyLook::taken;
	unlock_key(held);
	return KeyLook::busy;
}

bool
look_up_latched(Probe *probe, ScanKey keys, int nkeys, ScanDirection direction, KeyLock *held, const unsigned char *key,
				int size, Wait wait)
{
	for (;;)
	{
		ItemPointerData tid;
		TransactionId other;
		KeyLook look;

		// Here no key is latched: those who take many are interrupted between two of them.
		CHECK_FOR_INTERRUPTS();
		look = lock_and_look(probe, keys, nkeys, direction, held, key, size, wait);
		if (look != KeyLook::busy)
			return look == KeyLook::taken;
		if (wait == Wait::never)
			raise_held(probe->heap);
		other = holder(probe);
		tid = probe->slot->tts_tid;
		rest_probe(probe);
		expect_no_pins();
		XactLockTableWait(other, probe->heap, &tid, XLTW_InsertIndex);
	}
}

} // namespace outbox
