// saga.handle: the handler of the queue saga_internal, for timeouts and dead letters.
//
// Guarantee: what a message says is only a hint. Under the lock of the saga the tables decide, so anybody may put
// messages there: they cannot change what the tables say.

#include "message/dead.h"
#include "message/ledger.h"
#include "saga/advance.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "server/json.h"

namespace outbox {

namespace {

struct Hint {
	const char *event_type;
	Jsonb *payload;    // nullptr = none
	bool names_a_step; // it was found: what fails then is not the fault of the message
};

text *
payload_text(const Hint *hint, const char *key)
{
	return hint->payload != nullptr ? field_text(hint->payload, key) : nullptr;
}

void
give_up_step(Run *run, int place, core::Direction direction, const char *error)
{
	Answer answer = {};

	answer.direction = direction;
	answer.outcome = core::Outcome::unknown;
	answer.error = cstring_to_text(error);
	take_answer(run, place, answer);
}

// Before the deadline, as the table has it, it fails, and is tried again: the clock was set back.
void
refuse_early(const Step *step)
{
	if (step->deadline > GetCurrentTimestamp())
		ereport(ERROR,
				(errcode(ERRCODE_RAISE_EXCEPTION),
				 errmsg("step \"%s\" has time until %s", text_to_cstring(step->defined->name),
						DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(step->deadline))))));
}

// Locks the saga. Returns the place of its step.
int
find_step(Run *run, Call *call, Hint *hint, const core::Uuid *saga_id, const text *name)
{
	int place;

	begin_run(run, call, saga_id);
	run->refusal = ERRCODE_SAGA_BAD_HINT;
	read_steps(run);
	place = place_of_step(run, name);
	hint->names_a_step = true;
	return place;
}

void
time_out(Call *call, Hint *hint)
{
	core::Direction direction = direction_of(payload_text(hint, "direction"));
	int round = round_in_text(payload_text(hint, "round"));
	core::Uuid saga_id;
	bool has_saga = uuid_in_text(payload_text(hint, "saga_id"), &saga_id);
	const Step *step;
	const char *error;
	Run run;
	int place;

	place = find_step(&run, call, hint, has_saga ? &saga_id : nullptr, payload_text(hint, "step"));
	step = &run.steps[place];
	if (!step->has_deadline || !core::is_waited_for(run.states[place], direction, round))
		return;
	refuse_early(step);
	error = psprintf("step \"%s\" has not been answered in time", text_to_cstring(step->defined->name));
	withdraw_command(&run, direction == core::Direction::forward ? step->command_id : step->compensation_id, error);
	give_up_step(&run, place, direction, error);
}

void
bury(Call *call, Hint *hint)
{
	core::Uuid id;
	bool has_id = uuid_in_text(payload_text(hint, "outbox_id"), &id);
	CommandOf command = read_command_of(call, has_id ? &id : nullptr);
	Run run;
	int place;

	place = find_step(&run, call, hint, command.has_saga ? &command.saga_id : nullptr, command.step);
	if (!core::is_waited_for(run.states[place], command.direction, command.round) || !is_dead(call, id) ||
		!is_sent(&run, place, &command))
		return;
	give_up_step(
		&run, place, command.direction,
		psprintf("step \"%s\" is a dead letter: %s", text_to_cstring(command.step), last_error_recorded(call, id)));
}

void
act_on_hint(Hint *hint)
{
	Call call;

	begin_call(&call, "saga.handle()");
	if (strcmp(hint->event_type, "saga.timeout") == 0)
		time_out(&call, hint);
	else if (strcmp(hint->event_type, "outbox.dead_letter") == 0)
		bury(&call, hint);
	else
		ereport(ERROR, (errcode(ERRCODE_SAGA_BAD_HINT), errmsg("unknown event_type \"%s\"", hint->event_type)));
	end_call(&call);
}

// It names no saga, or nothing at all, and never will.
bool
is_about_nothing(const Hint *hint, const ErrorData *error)
{
	if (hint->names_a_step)
		return false;
	return error->sqlerrcode == ERRCODE_SAGA_NOT_FOUND || error->sqlerrcode == ERRCODE_INVALID_TEXT_REPRESENTATION ||
		   error->sqlerrcode == ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE ||
		   error->sqlerrcode == ERRCODE_NULL_VALUE_NOT_ALLOWED;
}

// In memory that an error leaves as it is.
Hint *
hint_argument(FunctionCallInfo fcinfo)
{
	HeapTupleHeader message = DatumGetHeapTupleHeader(required_datum(fcinfo, 0, "message"));
	Hint *hint = static_cast<Hint *>(palloc0(sizeof(Hint)));
	bool isnull;
	Datum value = GetAttributeByName(message, "event_type", &isnull);

	hint->event_type = isnull ? "" : TextDatumGetCString(value);
	value = GetAttributeByName(message, "payload", &isnull);
	hint->payload = isnull ? nullptr : DatumGetJsonbP(value);
	return hint;
}

} // namespace

OUTBOX_FUNCTION(outbox_saga_handle)
{
	Hint *hint = hint_argument(fcinfo);
	ErrorData *error = in_subtransaction([=] { act_on_hint(hint); });

	if (error != nullptr && is_about_nothing(hint, error))
		ereport(ERROR, (errcode(ERRCODE_SAGA_BAD_HINT), errmsg("%s", error->message)));
	if (error != nullptr)
		ReThrowError(error);
	PG_RETURN_VOID();
}

} // namespace outbox
