// See command.h.

#include "saga/command.h"

#include "message/cancelling.h"
#include "message/enqueueing.h"
#include "server/args.h"
#include "server/errors.h"
#include "server/json.h"
#include "server/settings.h"

namespace outbox {

namespace {

[[noreturn]] void
raise_no_command(const core::Uuid *id)
{
	ereport(ERROR, (errcode(ERRCODE_SAGA_NOT_FOUND), errmsg("SAGA_NOT_FOUND: message %s is not a command of a saga",
															id != nullptr ? shown(*id) : "<NULL>")));
}

// Of a message; the default if there is none. For inserting: the next command is probably written there.
template <typename Value, typename Read>
Value
in_message(Call *call, const core::Uuid &id, Read read)
{
	Table *leaf = find_leaf(call, messages_shape, id, inserts);
	Probe *probe = leaf != nullptr ? probe_id(leaf, id) : nullptr;
	Value value = {};

	if (probe == nullptr)
		return value;
	if (next_settled(probe, ForwardScanDirection))
		value = read(leaf, probe->slot);
	rest_probe(probe);
	return value;
}

Jsonb *
read_message_headers(Call *call, const core::Uuid &id)
{
	return in_message<Jsonb *>(call, id, [](const Table *leaf, TupleTableSlot *row) {
		bool isnull;

		return DatumGetJsonbPCopy(leaf->get(row, messages_col::headers, &isnull));
	});
}

// Makes of the id of a replay that of the message it replays. False: it is none.
bool
step_back_in_replays(Call *call, core::Uuid *id)
{
	return in_message<bool>(call, *id, [&](const Table *leaf, TupleTableSlot *row) {
		bool isnull;
		Datum original = leaf->get(row, messages_col::replay_of, &isnull);

		if (!isnull)
			*id = to_uuid(original);
		return !isnull;
	});
}

const char *
name_of(core::Direction direction)
{
	return direction == core::Direction::forward ? "forward" : "compensate";
}

int
round_of(const Run *run, int place, core::Direction direction)
{
	return direction == core::Direction::forward ? 1 : run->states[place].rounds;
}

Jsonb *
command_payload(Run *run)
{
	JsonObject payload = begin_object();

	put_field(&payload, "state", DatumGetJsonbP(run->becomes.state));
	open_inner(&payload, "results");
	for (int i = 0; i < run->count; i++)
		if (run->steps[i].result != nullptr)
			put_field(&payload, run->steps[i].defined->name, run->steps[i].result);
	close_inner(&payload);
	return end_object(&payload);
}

Jsonb *
headers_for(Run *run, int place, core::Direction direction)
{
	const Instance *saga = &run->becomes;
	const text *correlation = saga->has_correlation ? cstring_to_text(shown(saga->correlation_id)) : nullptr;
	JsonField fields[] = {json_field("saga_id", run->id_text),
						  json_field("saga_type", saga->saga_type),
						  json_field("step", run->steps[place].defined->name),
						  json_field("direction", name_of(direction)),
						  json_field("round", round_of(run, place, direction)),
						  json_field("correlation_id", correlation)};
	JsonObject headers = begin_object();

	put_fields_of(&headers, headers_of_run(run), fields, lengthof(fields));
	return end_object(&headers);
}

text *
key_for(const Run *run, int place, core::Direction direction)
{
	int round = round_of(run, place, direction);
	StringInfoData key;

	initStringInfo(&key);
	appendBinaryStringInfo(&key, VARDATA_ANY(run->id_text), static_cast<int>(VARSIZE_ANY_EXHDR(run->id_text)));
	appendStringInfo(&key, "/%s/%s", text_to_cstring(run->steps[place].defined->name), name_of(direction));
	if (round > 1)
		appendStringInfo(&key, "/%d", round);
	return cstring_to_text_with_len(key.data, key.len);
}

// As outbox.enqueue(), but it is always a new message: that it is sent once rests on the lock of the saga. If the key
// is taken, by a producer who meant to be in its place, it goes without.
core::Uuid
enqueue_one(Run *run, const text *queue, Message *message)
{
	const Queue *held;

	message->aggregate_type = run->becomes.saga_type;
	message->aggregate_id = run->id_text;
	message->partition_key = run->id_text;
	check_message(message);
	begin_next_command(run->call);
	held = hold_queue(run->call, queue);
	do
	{
		draw_ids(message, 1);
		write_messages(run->call, held, message, 1);
		message->idempotency_key = nullptr;
	} while (!message->created);
	return message->id;
}

void
send_timeout(Run *run, int place, core::Direction direction, text *key)
{
	JsonObject payload = begin_object();
	Message message = {};

	put_field(&payload, "saga_id", run->id_text);
	put_field(&payload, "step", run->steps[place].defined->name);
	put_field(&payload, "direction", name_of(direction));
	put_field(&payload, "round", round_of(run, place, direction));
	message.event_type = cstring_to_text("saga.timeout");
	message.payload = end_object(&payload);
	message.headers = empty_object();
	message.idempotency_key = key;
	message.has_deliver_at = true;
	// If outbox.max_delay is shorter, it comes too early, and is tried again.
	message.deliver_at = Min(run->steps[place].deadline, later_or_last(GetCurrentTimestamp(), max_delay_us()));
	enqueue_one(run, cstring_to_text("saga_internal"), &message);
}

} // namespace

core::Direction
direction_of(const text *name)
{
	return name != nullptr && equal(name, cstring_to_text("forward")) ? core::Direction::forward
																	  : core::Direction::compensate;
}

bool
uuid_in_text(const text *value, core::Uuid *id)
{
	if (value != nullptr)
		*id = to_uuid(DirectFunctionCall1(uuid_in, CStringGetDatum(text_to_cstring(value))));
	return value != nullptr;
}

int
round_in_text(const text *value)
{
	return value != nullptr ? DatumGetInt32(DirectFunctionCall1(int4in, CStringGetDatum(text_to_cstring(value)))) : -1;
}

CommandOf
read_command_of(Call *call, const core::Uuid *id)
{
	CommandOf command = {};

	command.headers = id != nullptr ? read_message_headers(call, *id) : nullptr;
	if (command.headers == nullptr || !has_field(command.headers, "saga_id") || !has_field(command.headers, "step") ||
		!has_field(command.headers, "direction") || !has_field(command.headers, "round"))
		raise_no_command(id);
	command.id = *id;
	command.has_saga = uuid_in_text(field_text(command.headers, "saga_id"), &command.saga_id);
	command.step = field_text(command.headers, "step");
	command.direction = direction_of(field_text(command.headers, "direction"));
	command.round = round_in_text(field_text(command.headers, "round"));
	return command;
}

bool
is_sent(Run *run, int place, const CommandOf *command)
{
	const Step *step = &run->steps[place];
	bool forward = command->direction == core::Direction::forward;
	const core::Uuid &sent = forward ? step->command_id : step->compensation_id;
	core::Uuid id = command->id;

	while (!equal(id, sent))
	{
		CHECK_FOR_INTERRUPTS();
		if (!step_back_in_replays(run->call, &id))
			return false;
	}
	return true;
}

void
require_sent(Run *run, int place, const CommandOf *command)
{
	if (!is_sent(run, place, command))
		raise_no_command(&command->id);
}

core::Uuid
send_command(Run *run, int place, core::Direction direction)
{
	const DefinedStep *defined = run->steps[place].defined;
	bool forward = direction == core::Direction::forward;
	Message message = {};
	text *key;

	if (run->id_text == nullptr)
		run->id_text = cstring_to_text(shown(run->becomes.id));
	key = key_for(run, place, direction);
	message.event_type = forward ? defined->command : defined->compensation;
	message.payload = command_payload(run);
	message.headers = headers_for(run, place, direction);
	message.idempotency_key = key;
	message.max_attempts = forward ? defined->max_attempts : 0;
	enqueue_one(run, defined->queue, &message);
	if (run->steps[place].has_deadline)
		send_timeout(run, place, direction, key);
	return message.id;
}

void
withdraw_command(Run *run, const core::Uuid &id, const char *reason)
{
	begin_next_command(run->call);
	cancel_message(run->call, id, {cstring_to_text(reason), true, saga_owner(run->call)});
}

TimestampTz
deadline_from(TimestampTz now, const DefinedStep *defined)
{
	return DatumGetTimestampTz(
		DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now), IntervalPGetDatum(defined->timeout)));
}

} // namespace outbox
