// break_lease: an operator takes a lease from the worker that holds it.
//
// Guarantees: the message is as if the lease had expired now and were repaired. The transaction leaves exactly one
// ledger row with LEASE_BROKEN: ZOMBIE_REQUEUE, or FAILED at the ceiling, which ends the message. From then on the
// worker's token is stale (P7002). If a completion comes first, there is nothing to break.

#include "server/args.h"
#include "server/boundary.h"
#include "message/audit_event.h"
#include "message/lost_lease.h"

namespace outbox {

namespace {

PendingRow *
leased_row(Call *call, const core::Uuid &id)
{
	PendingRow *row = pending_row(call, id);

	if (!row->leased)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("message %s is not leased", shown(id)),
				 errdetail("It is pending, and no worker holds it.")));
	return row;
}

} // namespace

OUTBOX_FUNCTION(outbox_break_lease)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	const LostLease broken = {current_user_name(), broken_code, reason, Wait::for_row};
	Attempt attempt;
	Call call;

	begin_call(&call, "break_lease()");
	while (recover_lease(&call, leased_row(&call, id), broken, free_lost_lease, &attempt) == Recovery::skipped)
		CHECK_FOR_INTERRUPTS();
	record_for_message(&call, Audited::lease_broken, attempt.queue, id, attempt.attempt_no, reason);
	end_call(&call);
	PG_RETURN_INT32(attempt.attempt_no);
}

} // namespace outbox
