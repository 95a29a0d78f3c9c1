// enqueue_batch: many messages from one JSON array.
//
// Guarantees: an element has the same effect as enqueue with the same arguments. Results are in the
// order of the input. The whole array is read and checked before anything is written. The CONTEXT of
// an error names the element.

#include "core/times.h"
#include "server/args.h"
#include "server/boundary.h"
#include "message/enqueueing.h"

namespace outbox {

namespace {

// What is being read, for the error context.
struct Place {
	int element;
	const char *name; // of the value, nullptr = none
	char short_name[NAMEDATALEN];
};

void
name_place(void *arg)
{
	const Place *place = static_cast<const Place *>(arg);

	if (place->name != nullptr)
		errcontext("%s of element %d of messages", shown(cstring_to_text(place->name)), place->element);
	else
		errcontext("element %d of messages", place->element);
}

[[noreturn]] void
wrong_type(const char *name, const char *wanted)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be %s", name, wanted)));
}

text *
text_of(const char *name, const JsonbValue *value)
{
	if (value->type != jbvString)
		wrong_type(name, "a JSON string");
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

char *
string_of(const char *name, const JsonbValue *value)
{
	return text_to_cstring(text_of(name, value));
}

int
int_of(const char *name, const JsonbValue *value)
{
	const char *digits;
	char *end;
	long number;

	if (value->type != jbvNumeric)
		wrong_type(name, "a JSON number");
	digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
	errno = 0;
	number = strtol(digits, &end, 10);
	if (*end != '\0' || errno != 0 || number < PG_INT32_MIN || number > PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be an integer, not %s", name, shown(cstring_to_text(digits)))));
	return static_cast<int>(number);
}

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
			message->event_id = to_uuid(DirectFunctionCall1(uuid_in, CStringGetDatum(string_of(name, value))));
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

// The names of the arguments are short, and there are some in each element.
void
set_name(Place *place, const JsonbValue *key)
{
	Size length = static_cast<Size>(key->val.string.len);

	if (length >= sizeof(place->short_name))
	{
		place->name = pnstrdup(key->val.string.val, length);
		return;
	}
	memcpy(place->short_name, key->val.string.val, length);
	place->short_name[length] = '\0';
	place->name = place->short_name;
}

void
read_element(JsonbContainer *object, Jsonb *no_headers, Place *place, Message *message)
{
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbIteratorToken token;
	JsonbValue value;

	memset(message, 0, sizeof(*message));
	message->headers = no_headers;
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
		if (token == WJB_KEY)
			set_name(place, &value);
		else if (token == WJB_VALUE)
			read_field(place->name, &value, message);
	place->name = nullptr;
	if (message->event_type == nullptr)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("event_type must not be null")));
	if (message->payload_bytes != nullptr && message->payload != nullptr && is_json_null(message->payload))
		message->payload = nullptr; // JSON null beside payload_bytes is no payload
	check_message(message);
}

Message *
read_messages(Jsonb *array, int *count)
{
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue value;
	Jsonb *no_headers = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	Place place = {};
	ErrorContextCallback context = {error_context_stack, name_place, &place};
	Message *messages;

	if (!JB_ROOT_IS_ARRAY(array) || JB_ROOT_IS_SCALAR(array))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("messages must be a JSON array of objects")));
	check_batch(static_cast<int>(JB_ROOT_COUNT(array)), "the number of messages");
	messages = static_cast<Message *>(palloc_extended(sizeof(Message) * Max(JB_ROOT_COUNT(array), 1), MCXT_ALLOC_HUGE));
	error_context_stack = &context;
	iterator = JsonbIteratorInit(&array->root);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token != WJB_ELEM)
			continue;
		place.element++;
		if (value.type != jbvBinary || !JsonContainerIsObject(value.val.binary.data))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("messages must be a JSON array of objects")));
		read_element(value.val.binary.data, no_headers, &place, &messages[place.element - 1]);
		messages[place.element - 1].element = place.element;
		CHECK_FOR_INTERRUPTS();
	}
	error_context_stack = context.previous;
	*count = place.element;
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
