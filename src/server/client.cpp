// See client.h.

#include "server/client.h"

#include "server/clock.h"

namespace outbox {

void
end_for_lost_client()
{
	ClientConnectionLost = true;
	InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

text *
client_address()
{
	LOCAL_FCINFO(call, 0);
	Datum address;

	InitFunctionCallInfoData(*call, nullptr, 0, InvalidOid, nullptr, nullptr);
	address = inet_client_addr(call);
	return call->isnull ? nullptr : DatumGetTextPP(DirectFunctionCall1(network_host, address));
}

void
wait_for_latch_or_client(int64 us)
{
	WaitEvent event = {};

	if (!has_watched_client())
	{
		wait_for_latch(us);
		return;
	}
	// PostgreSQL itself makes no event of a client that is gone, but its wait set can.
	ModifyWaitEvent(FeBeWaitSet, FeBeWaitSetSocketPos, WL_SOCKET_CLOSED, nullptr);
	WaitEventSetWait(FeBeWaitSet, whole_ms(us), &event, 1, extension_wait_event());
	if ((event.events & WL_POSTMASTER_DEATH) != 0)
		proc_exit(1);
	if ((event.events & WL_SOCKET_CLOSED) != 0)
		end_for_lost_client();
	ResetLatch(MyLatch);
}

} // namespace outbox
