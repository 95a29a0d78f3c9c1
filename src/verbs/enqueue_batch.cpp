// enqueue_batch: many messages from one JSON array.
//
// Guarantees: an element has the same effect as enqueue with the same arguments. Results are in the
// order of the input. The whole array is read and checked before anything is written. The CONTEXT of
// an error names the element.

#include "core/times.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/json_elements.h"
#include "message/enqueueing.h"

namespace outbox {

namespace {

// Base64, as encode() writes it. The server refuses anything else (22023).
bytea *
bytes_of(const char *name, const JsonbValue *value)
{
	return DatumGetByteaPP(
		DirectFunctionCall2(binary_decode, PointerGetDatum(text_of(name, value)), CStringGetTextDatum("base64")));
}

TimestampTz
time_in_zone(const char *string, const char *zone)
{
	if (zone != nullptr)
		set_config_option("timezone", zone, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return DatumGetTimestampTz(
		DirectFunctionCall3(timestamptz_in, CStringGetDatum(string), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

// A time without a zone would be another moment in each session.
TimestampTz
time_of(const char *name, const JsonbValue *value)
{
	const char *string = string_of(name, value);
	TimestampTz time = time_in_zone(string, nullptr);
	bool same;
	int level;

	if (core::has_utc_offset(string))
		return time;
	level = NewGUCNestLevel();
	same = time_in_zone(string, "Etc/GMT+12") == time && time_in_zone(string, "Etc/GMT-12") == time;
	AtEOXact_GUC(true, level);
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have a time zone: \"%s\"", name, shown(cstring_to_text(string))),
				 errhint("Add the offset from UTC, as in \"2030-01-31T12:00:00Z\" or \"2030-01-31T12:00:00+01:00\".")));
	return time;
}

void
read_field(const char *name, JsonbValue *value, Message *message)
{
	struct {
		const char *of;
		text **target;
	} texts[] = {{"event_type", &message->event_type},     {"aggregate_type", &message->aggregate_type},
				 {"aggregate_id", &message->aggregate_id}, {"partition_key", &message->partition_key},
				 {"routing_key", &message->routing_key},   {"idempotency_key", &message->idempotency_key},
				 {"content_type", &message->content_type}};
	auto is = [&](const char *candidate) { return *name == *candidate && strcmp(name, candidate) == 0; };
	bool absent = value->type == jbvNull; // JSON null: the argument's default

	for (const auto &field : texts)
		if (is(field.of))
		{
			if (!absent)
				*field.target = text_of(name, value);
			return;
		}
	if (is("payload"))
		message->payload = JsonbValueToJsonb(value);
	else if (is("payload_bytes"))
		message->payload_bytes = absent ? nullptr : bytes_of(name, value);
	else if (is("headers"))
		message->headers = absent ? message->headers : JsonbValueToJsonb(value);
	else if (is("priority"))
		message->priority = absent ? 0 : int_of(name, value);
	else if (is("max_attempts"))
	{
		if (!absent)
		{
			message->max_attempts = int_of(name, value);
			check_at_least(message->max_attempts, 1, name);
		}
	}
	else if (is("event_id"))
	{
		message->has_event_id = !absent;
		if (!absent)
			message->event_id = uuid_in_field(name, value);
	}
	else if (is("deliver_at"))
	{
		message->has_deliver_at = !absent;
		if (!absent)
			message->deliver_at = time_of(name, value);
	}
	else
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown key \"%s\" in messages", shown(cstring_to_text(name))),
						errhint("The keys are the names of the arguments of outbox.enqueue, without queue.")));
}

bool
is_json_null(const Jsonb *json)
{
	JsonbValue value;

	return JsonbExtractScalar(const_cast<JsonbContainer *>(&json->root), &value) && value.type == jbvNull;
}

void
read_element(JsonElements *elements, Jsonb *no_headers, Message *message)
{
	JsonbValue value;

	memset(message, 0, sizeof(*message));
	message->headers = no_headers;
	message->element = elements->number;
	while (next_field(elements, &value))
		read_field(elements->name, &value, message);
	if (message->event_type == nullptr)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("event_type must not be null")));
	if (message->payload_bytes != nullptr && message->payload != nullptr && is_json_null(message->payload))
		message->payload = nullptr; // JSON null beside payload_bytes is no payload
	check_message(message);
}

Message *
read_messages(Jsonb *array, int *count)
{
	Jsonb *no_headers = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	JsonElements elements;
	Message *messages;

	*count = begin_elements(&elements, array, "messages");
	messages = static_cast<Message *>(palloc_extended(sizeof(Message) * Max(*count, 1), MCXT_ALLOC_HUGE));
	while (next_element(&elements))
		read_element(&elements, no_headers, &messages[elements.number - 1]);
	end_elements(&elements);
	return messages;
}

} // namespace

OUTBOX_FUNCTION(outbox_enqueue_batch)
{
	text *queue = required_text(fcinfo, 0, "queue");
	int count;
	Message *messages = read_messages(DatumGetJsonbP(required_datum(fcinfo, 1, "messages")), &count);
	const Queue *held;
	Call call;

	begin_results(fcinfo);
	begin_call(&call, "enqueue_batch()");
	begin_enqueueing(&call);
	held = hold_queue(&call, queue);
	draw_ids(messages, count);
	write_messages(&call, held, messages, count);
	for (int i = 0; i < count; i++)
	{
		Datum values[4] = {Int32GetDatum(i + 1), from_uuid(messages[i].id), Int64GetDatum(messages[i].sequence_id),
						   BoolGetDatum(messages[i].created)};
		bool nulls[4] = {false, false, !messages[i].has_sequence, false};

		put_result(fcinfo, values, nulls);
	}
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
