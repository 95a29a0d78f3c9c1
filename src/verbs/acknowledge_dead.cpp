// acknowledge_dead: an operator acknowledges a dead letter.
//
// Guarantees: it no longer counts as dead, and no longer keeps its partition. The ledger and the message do not change,
// and it can still be replayed. Only the first acknowledgement is recorded.

#include "message/audit_event.h"
#include "message/dead.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"

namespace outbox {

OUTBOX_FUNCTION(outbox_acknowledge_dead)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	text *by = current_user_name();
	text *queue;
	Acknowledged result;
	Call call;

	begin_call(&call, "acknowledge_dead()");
	result = acknowledge(&call, id, by, reason, &queue);
	if (result == Acknowledged::never)
		ereport(ERROR,
				(errcode(ERRCODE_OUTBOX_NOT_PENDING), errmsg("NOT_PENDING: message %s is not a dead letter", shown(id)),
				 errdetail("It was replayed, it did not end as FAILED, or there is no such message."),
				 errhint("outbox.explain() says what became of it.")));
	if (result == Acknowledged::now)
		record_for_message(&call, Audited::dead_acknowledged, queue, id, 0, reason);
	end_call(&call);
	PG_RETURN_BOOL(result == Acknowledged::now);
}

} // namespace outbox
