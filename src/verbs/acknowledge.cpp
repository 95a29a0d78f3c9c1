// acknowledge_dead: an operator takes note of a dead letter.
//
// Guarantees: it counts as dead no more, and keeps no partition from being retired; the ledger and the message stay as
// they are, and it can still be replayed. Once: the first who acknowledges it is recorded.

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
	Acknowledged result;
	Call call;

	begin_call(&call, "acknowledge_dead()");
	result = acknowledge(&call, id, by, reason);
	if (result == Acknowledged::never)
		ereport(ERROR,
				(errcode(ERRCODE_OUTBOX_NOT_PENDING), errmsg("NOT_PENDING: message %s is not a dead letter", shown(id)),
				 errdetail("It was replayed, it did not end as FAILED, or there is no such message.")));
	end_call(&call);
	PG_RETURN_BOOL(result == Acknowledged::now);
}

} // namespace outbox
