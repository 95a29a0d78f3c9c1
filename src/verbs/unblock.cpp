// unblock: an operator lets a key go on that a dead head blocks.
//
// Guarantees: those of message/order.h.

#include "message/audit_event.h"
#include "message/order.h"
#include "message/queue.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"

namespace outbox {

namespace {

void
record_unblocked(Call *call, const text *queue, const text *partition_key, const core::Uuid &blocked_by)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::key_unblocked, queue, nullptr, &blocked_by, nullptr, 1};

	put_field(&detail, "partition_key", partition_key);
	event.detail = end_object(&detail);
	record_event(call, event);
}

} // namespace

OUTBOX_FUNCTION(outbox_unblock)
{
	text *name = required_text(fcinfo, 0, "queue");
	text *partition_key = required_nonempty_text(fcinfo, 1, "partition_key");
	core::Uuid blocked_by;
	Call call;

	begin_call(&call, "unblock()");
	if (!unblock_key(&call, queue_named(&call, name), partition_key, &blocked_by))
		ereport(ERROR, (errcode(ERRCODE_OUTBOX_NOT_PENDING),
						errmsg("NOT_PENDING: no dead head blocks partition_key \"%s\" of queue \"%s\"",
							   shown(partition_key), shown(name)),
						errhint("outbox.blocked_keys shows what each key waits for.")));
	record_unblocked(&call, name, partition_key, blocked_by);
	end_call(&call);
	PG_RETURN_DATUM(from_uuid(blocked_by));
}

} // namespace outbox
