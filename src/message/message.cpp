// See message.h.

#include "message/message.h"

#include "server/settings.h"

namespace outbox {

namespace {

constexpr int greatest_priority = 15;

void
check_keys(const Message *message)
{
	refuse_empty_key(message->idempotency_key, "idempotency_key");
	refuse_empty_key(message->partition_key, "partition_key");
	if (message->has_event_id)
		refuse_nil_event_id(message->event_id, "Pass NULL to use the outbox_id.");
}

void
check_payload(const Message *message)
{
	if (message->payload == nullptr && message->payload_bytes == nullptr)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload or payload_bytes must be given"),
						errhint("A message without content can have the payload '{}'.")));
	if (message->payload != nullptr && message->payload_bytes != nullptr)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload and payload_bytes must not both be given")));
}

// Whether it is a JSON string that holds a JSON object.
bool
is_encoded_twice(const Jsonb *payload)
{
	JsonbValue value;

	if (!JB_ROOT_IS_SCALAR(payload) || !JsonbExtractScalar(const_cast<JsonbContainer *>(&payload->root), &value) ||
		value.type != jbvString)
		return false;
	for (int i = 0; i < value.val.string.len; i++)
		if (strchr(" \t\r\n", value.val.string.val[i]) == nullptr)
			return value.val.string.val[i] == '{' && is_json(value.val.string.val, value.val.string.len);
	return false;
}

} // namespace

void
check_payload_kind(const Queue *queue, const Message *message)
{
	if (!queue->refuses_encoded || message->payload == nullptr || !is_encoded_twice(message->payload))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload is a JSON string that holds a JSON object"),
			 errdetail("Queue \"%s\" has payload_kind object.", shown(queue->name)),
			 errhint("It was encoded twice: pass the object itself. Where a string is meant, use "
					 "outbox.alter_queue with payload_kind => 'any'."),
			 message->element > 0 ? errcontext("element %d of messages", message->element) : 0));
}

void
check_message(const Message *message)
{
	check_nonempty(message->event_type, "event_type");
	check_payload(message);
	check_keys(message);
	if (!JB_ROOT_IS_OBJECT(message->headers))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("headers must be a JSON object, not %s",
							   shown(cstring_to_text(JsonbToCString(nullptr, &message->headers->root,
																	static_cast<int>(VARSIZE(message->headers))))))));
	check_priority(message->priority);
	if (message->has_deliver_at)
		check_due_time(message->deliver_at, "deliver_at");
}

void
check_priority(int priority)
{
	if (priority < 0 || priority > greatest_priority)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("priority must be between 0 and %d, not %d", greatest_priority, priority)));
}

void
check_due_time(TimestampTz time, const char *name)
{
	if (TIMESTAMP_NOT_FINITE(time))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be finite, not %s", name, timestamptz_to_str(time))));
	if (time > later_or_last(GetCurrentTimestamp(), max_delay_us()))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be later than outbox.max_delay from now: %s", name, timestamptz_to_str(time)),
				 errdetail("outbox.max_delay is %s.", GetConfigOptionByName("outbox.max_delay", nullptr, false))));
}

} // namespace outbox
