// The client of this session.
#pragma once

#include "server/pg.h"

namespace outbox {

// Does not return.
void end_for_lost_client();

// Whether it has a client whose end the server can notice. A background worker may send its output to another process,
// as if to a client, but has no socket.
inline bool
has_watched_client()
{
	return whereToSendOutput == DestRemote && FeBeWaitSet != nullptr && WaitEventSetCanReportClosed();
}

// Ends the session if its client is gone, as client_connection_check_interval does. Costs one
// system call.
inline void
check_client()
{
	if (has_watched_client() && !pq_check_connection())
		end_for_lost_client();
}

// The same, for a statement that has run so long that it must have waited.
inline void
check_client_after_wait()
{
	if (GetCurrentTimestamp() - GetCurrentStatementStartTimestamp() > USECS_PER_SEC)
		check_client();
}

// As host(inet_client_addr()); nullptr without a client, or by a Unix-domain socket.
text *client_address();

// Waits until this process's latch is set or us have passed; ends the session as soon as its client is gone. The caller
// processes interrupts.
void wait_for_latch_or_client(int64 us);

} // namespace outbox
