// Code under a spinlock.
#pragma once

#include "server/pg.h"

namespace outbox {

// body() only loads and stores: a process that waits for the lock spins.
template <typename Body>
void
under(slock_t *lock, const Body &body)
{
	SpinLockAcquire(lock);
	body();
	SpinLockRelease(lock);
}

} // namespace outbox
