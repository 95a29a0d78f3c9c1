// The client of this session.
#pragma once

#include "server/pg.h"

namespace outbox {

// Ends the session if its client is gone, as client_connection_check_interval does. Costs one
// system call.
inline void
check_client()
{
	if (whereToSendOutput != DestRemote || !WaitEventSetCanReportClosed() || pq_check_connection())
		return;
	ClientConnectionLost = true;
	InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

// The same, for a statement that has run so long that it must have waited.
inline void
check_client_after_wait()
{
	if (GetCurrentTimestamp() - GetCurrentStatementStartTimestamp() > USECS_PER_SEC)
		check_client();
}

} // namespace outbox
