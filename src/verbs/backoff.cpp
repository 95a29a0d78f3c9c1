// backoff: shows how long a queue waits after an attempt.

#include "message/queue.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

OUTBOX_FUNCTION(outbox_backoff)
{
	text *name = required_text(fcinfo, 0, "queue");
	int attempt_no = required_int(fcinfo, 1, "attempt_no");
	core::Uuid id = PG_ARGISNULL(2) ? core::Uuid{} : to_uuid(PG_GETARG_DATUM(2));
	Interval *result = static_cast<Interval *>(palloc0(sizeof(Interval)));
	Call call;

	check_at_least(attempt_no, 1, "attempt_no");
	begin_reading(&call);
	result->time = queue_backoff_us(queue_named(&call, name), attempt_no, PG_ARGISNULL(2) ? nullptr : &id);
	end_reading(&call);
	PG_RETURN_INTERVAL_P(result);
}

} // namespace outbox
