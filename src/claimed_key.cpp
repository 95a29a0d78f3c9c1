// See claimed_key.h.

#include "claimed_key.h"

namespace outbox {

void
latch(KeyLatch *latch, Relation rel, const unsigned char *key, int size)
{
	uint64 bits = 0;

	for (int i = 0; i < Min(size, 6); i++)
		bits = bits << 8 | key[i];
	SET_LOCKTAG_OBJECT(latch->tag, MyDatabaseId, RelationGetRelid(rel), static_cast<uint32>(bits >> 16),
					   static_cast<uint16>(bits));
	LockAcquire(&latch->tag, ExclusiveLock, false, false);
}

void
unlatch(const KeyLatch *latch)
{
	LockRelease(&latch->tag, ExclusiveLock, false);
}

bool
look_up_latched(Probe *probe, ScanKey keys, int nkeys, ScanDirection direction, KeyLatch *held,
				const unsigned char *key, int size)
{
	for (;;)
	{
		ItemPointerData tid;
		TransactionId other;
		bool found;

		// Here no key is latched: those who take many are interrupted between two of them.
		CHECK_FOR_INTERRUPTS();
		latch(held, probe->table->rel, key, size);
		start_probe(probe, keys, nkeys);
		found = next_row(probe, direction);
		other = found ? (TransactionIdIsValid(probe->inserter()) ? probe->inserter() : probe->changer()) :
						InvalidTransactionId;
		if (!TransactionIdIsValid(other))
			return found;
		unlatch(held);
		tid = probe->slot->tts_tid;
		// No pin is held while waiting, of the heap's page nor of the index's: VACUUM would
		// wait for it.
		ExecClearTuple(probe->slot);
		start_probe(probe, keys, nkeys);
		XactLockTableWait(other, probe->table->rel, &tid, XLTW_InsertIndex);
	}
}

}	// namespace outbox
