// take_number: takes the next number of a key, for something that is not a message.

#include "message/enqueueing.h"
#include "message/sequence.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

OUTBOX_FUNCTION(outbox_take_number)
{
	const text *name = required_text(fcinfo, 0, "queue");
	Message message = {};
	Numbered number = {};
	const Queue *queue;
	Call call;

	number.partition_key = required_nonempty_text(fcinfo, 1, "partition_key");
	begin_call(&call, "take_number()");
	queue = hold_queue(&call, name);
	if (!queue->numbered)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("queue \"%s\" does not number its messages", shown(name)),
						errhint("Use outbox.alter_queue to set its ordering to numbered.")));
	// With a new id: the number belongs to no message.
	draw_ids(&message, 1);
	number.id = message.id;
	take_numbers(&call, queue->name, &number, 1);
	end_call(&call);
	PG_RETURN_INT64(number.sequence_id);
}

} // namespace outbox
