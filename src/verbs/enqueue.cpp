// enqueue, enqueue_and_claim: one message in a producer's transaction.
//
// Guarantees: as in enqueueing.h, in the caller's transaction. enqueue_and_claim requires both roles,
// because it also gives a lease; a client that is gone gets none. For batches see enqueue_batch.cpp.

#include "server/args.h"
#include "server/boundary.h"
#include "server/client.h"
#include "message/audit_notes.h"
#include "message/enqueueing.h"

namespace outbox {

namespace {

void
require_membership(const char *role)
{
	if (!has_privs_of_role(GetUserId(), get_role_oid(role, false)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for function enqueue_and_claim"),
				 errdetail("It enqueues and claims, and role \"%s\" is not a member of %s.",
						   GetUserNameFromId(GetUserId(), false), role),
				 errhint("GRANT %s TO \"%s\".", role, GetUserNameFromId(GetUserId(), false))));
}

// The arguments that both functions have, from `first` on, up to priority.
Message
message_arguments(FunctionCallInfo fcinfo, int first)
{
	Message message = {};

	message.event_type = required_text(fcinfo, first, "event_type");
	message.payload = PG_ARGISNULL(first + 1) ? nullptr : PG_GETARG_JSONB_P(first + 1);
	message.aggregate_type = optional_text(fcinfo, first + 3);
	message.aggregate_id = optional_text(fcinfo, first + 4);
	message.partition_key = optional_text(fcinfo, first + 5);
	message.idempotency_key = optional_text(fcinfo, first + 6);
	message.has_event_id = !PG_ARGISNULL(first + 7);
	if (message.has_event_id)
		message.event_id = to_uuid(PG_GETARG_DATUM(first + 7));
	message.headers = DatumGetJsonbP(required_datum(fcinfo, first + 8, "headers"));
	message.routing_key = optional_text(fcinfo, first + 9);
	message.priority = required_int(fcinfo, first + 10, "priority");
	return message;
}

// The last two arguments of both functions.
void
take_payload_bytes(FunctionCallInfo fcinfo, int first, Message *message)
{
	if (!PG_ARGISNULL(first))
		message->payload_bytes = PG_GETARG_BYTEA_PP(first);
	message->content_type = optional_text(fcinfo, first + 1);
}

void
write_message(Call *call, const text *queue, Message *message)
{
	const Queue *held = hold_queue(call, queue);

	if (message->leased_to != nullptr)
		refuse_handled(held);
	draw_ids(message, 1);
	write_messages(call, held, message, 1);
}

void
take_max_attempts(FunctionCallInfo fcinfo, int arg, Message *message)
{
	if (PG_ARGISNULL(arg))
		return;
	message->max_attempts = PG_GETARG_INT32(arg);
	check_at_least(message->max_attempts, 1, "max_attempts");
}

} // namespace

OUTBOX_FUNCTION(outbox_enqueue)
{
	Message message = message_arguments(fcinfo, 0);
	text *queue = required_text(fcinfo, 2, "queue");
	TupleDesc desc;
	Call call;
	Datum values[3];
	bool nulls[3] = {};

	message.has_deliver_at = !PG_ARGISNULL(11);
	message.deliver_at = message.has_deliver_at ? PG_GETARG_TIMESTAMPTZ(11) : 0;
	take_max_attempts(fcinfo, 12, &message);
	take_payload_bytes(fcinfo, 13, &message);
	check_message(&message);

	desc = single_row_desc(fcinfo);
	begin_call(&call, "enqueue()");
	begin_enqueueing(&call);
	write_message(&call, queue, &message);
	values[0] = from_uuid(message.id);
	values[1] = Int64GetDatum(message.sequence_id);
	nulls[1] = !message.has_sequence;
	values[2] = BoolGetDatum(message.created);
	end_call(&call);
	return single_row(desc, values, nulls);
}

OUTBOX_FUNCTION(outbox_enqueue_and_claim)
{
	text *worker = worker_argument(fcinfo, 0);
	Message message = message_arguments(fcinfo, 1);
	text *queue = required_text(fcinfo, 3, "queue");
	TupleDesc desc;
	Call call;
	bool leased;
	Datum values[5];
	bool nulls[5] = {};

	take_max_attempts(fcinfo, 12, &message);
	if (!PG_ARGISNULL(13))
	{
		message.lease_us = positive_interval_us(PG_GETARG_INTERVAL_P(13), "lease");
		later(GetCurrentTimestamp(), message.lease_us, "lease");
	}
	take_payload_bytes(fcinfo, 14, &message);
	check_message(&message);
	require_membership("outbox_ingest");
	require_membership("outbox_executor");

	message.leased_to = worker;
	desc = single_row_desc(fcinfo);
	begin_call(&call, "enqueue_and_claim()");
	begin_enqueueing(&call);
	write_message(&call, queue, &message);
	check_client_after_wait();
	leased = message.created && message.leased_to != nullptr;
	if (leased)
		note_audited(&call, {Audited::claimed, queue, worker, message.id, 1, message.lease_expires_at});
	values[0] = from_uuid(message.id);
	values[1] = Int64GetDatum(message.sequence_id);
	nulls[1] = !message.has_sequence;
	values[2] = BoolGetDatum(message.created);
	values[3] = from_uuid(message.lease_token);
	values[4] = TimestampTzGetDatum(message.lease_expires_at);
	nulls[3] = nulls[4] = !leased;
	end_call(&call);
	return single_row(desc, values, nulls);
}

} // namespace outbox
