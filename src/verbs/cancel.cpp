// cancel: an operator ends a pending message.
//
// Guarantees: those of message/cancelling.h.

#include "server/args.h"
#include "server/boundary.h"
#include "message/cancelling.h"
#include "message/lease.h"

namespace outbox {

OUTBOX_FUNCTION(outbox_cancel)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	bool force = required_bool(fcinfo, 2, "force");
	text *by = current_user_name();
	int attempt_no;
	Call call;

	begin_call(&call, "cancel()");
	attempt_no = cancel_message(&call, id, reason, force, by);
	if (attempt_no == 0)
		raise_not_pending(id);
	end_call(&call);
	PG_RETURN_INT32(attempt_no);
}

} // namespace outbox
