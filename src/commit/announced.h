// The earliest time that was announced, in shared memory: any process lowers it, and one process takes it.
#pragma once

#include "server/pg.h"

namespace outbox {

inline TimestampTz
announced(pg_atomic_uint64 *earliest)
{
	return static_cast<TimestampTz>(pg_atomic_read_u64(earliest));
}

// Full barrier.
inline void
announce(pg_atomic_uint64 *earliest, TimestampTz time)
{
	uint64 known = pg_atomic_read_u64(earliest);

	while (time < static_cast<TimestampTz>(known) &&
		   !pg_atomic_compare_exchange_u64(earliest, &known, static_cast<uint64>(time)))
		;
	pg_memory_barrier();
}

// Leaves DT_NOEND.
inline TimestampTz
take_announced(pg_atomic_uint64 *earliest)
{
	return static_cast<TimestampTz>(pg_atomic_exchange_u64(earliest, static_cast<uint64>(DT_NOEND)));
}

} // namespace outbox
