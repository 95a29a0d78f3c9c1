// checked_batch, confirmed: what cancel_many, replay_many and purge, which are SQL, ask about their arguments.

#include "message/queue.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

// Returns how many are to be done, of a queue that exists: 0 in a dry run.
OUTBOX_FUNCTION(outbox_checked_batch)
{
	text *name = required_text(fcinfo, 0, "queue");
	int batch_size = required_int(fcinfo, 1, "batch_size");
	bool acts = !PG_ARGISNULL(3) && !PG_GETARG_BOOL(3);
	Call call;

	required_nonempty_text(fcinfo, 2, "reason");
	check_at_least(batch_size, 1, "batch_size");
	check_batch(batch_size, "batch_size");
	begin_reading(&call);
	queue_named(&call, name);
	end_reading(&call);
	if (acts)
		PreventCommandIfReadOnly("cancel_many() or replay_many()");
	PG_RETURN_INT32(acts ? batch_size : 0);
}

// Whether the name was given twice.
OUTBOX_FUNCTION(outbox_confirmed)
{
	const text *name = required_text(fcinfo, 0, "queue");
	const text *again = optional_text(fcinfo, 1);

	if (again != nullptr && !equal(name, again))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("queue_again must be the name of the queue, \"%s\", not \"%s\"", shown(name), shown(again)),
				 errhint("Without queue_again purge() only shows what it would cancel.")));
	PG_RETURN_BOOL(again != nullptr);
}

} // namespace outbox
