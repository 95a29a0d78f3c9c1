// saga.succeed, saga.fail, saga.reply: participants answer commands.
//
// Guarantees: the saga is locked before the message of its command, so that an answer and a timeout that gives up the
// same command do not deadlock. The first answer to a command counts. The success of a worker counts even if its
// command was taken from it, because the work is done: then no lease is asked for. Its failure counts then if no
// other worker had the command after it. No work commits that nothing would undo.

#include "message/lease.h"
#include "message/pending_row.h"
#include "message/try_report.h"
#include "saga/advance.h"
#include "saga/verb.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "server/json.h"

namespace outbox {

namespace {

// The report on a command's message, and the step that it is about.
struct Report {
	TryReport of_try;
	CommandOf command;
	int place;
	bool late;    // the saga has gone on without it
	bool awaited; // it changes the step
};

void
begin_report_of(Run *run, Call *call, Report *report)
{
	report->command = read_command_of(call, &report->of_try.id);
	begin_run(run, call, report->command.has_saga ? &report->command.saga_id : nullptr);
	read_steps(run);
	report->place = place_of_step(run, report->command.step);
	report->late = core::is_late(run->states[report->place], report->command.direction);
	report->awaited = core::is_awaited(run->states[report->place], report->command.direction, report->command.round);
	if (report->awaited)
		require_sent(run, report->place, &report->command);
	// Those of the run, with those that name the step, which the next command overwrites.
	if (report->awaited)
		run->headers = report->command.headers;
}

// Whether the message ended under this lease.
bool
is_of_last_worker(const Run *run, const Report *report)
{
	Recorded recorded = recorded_under(run->call, report->of_try.id, report->of_try.token);

	return recorded.attempt_no > 0 && is_terminal(recorded.state);
}

// As outbox.complete(), unless the message was taken from its worker. What is done is done, but that it was not done is
// known to the last worker alone.
void
settle_command(FunctionCallInfo fcinfo, Run *run, Report *report)
{
	const text *worker;

	if (report->late && find_pending(run->call, report->of_try.id) == nullptr &&
		(report->of_try.state == core::Record::dispatched || is_of_last_worker(run, report)))
		return;
	worker = worker_argument(fcinfo, 2);
	report->of_try.has_state = true;
	settle_try(run->call, &report->of_try, worker);
}

// The worker of a replay, or of a command that was answered by saga.reply.
void
refuse_forgotten(const Run *run, const Report *report)
{
	if (!core::would_be_forgotten(run->states[report->place], report->command.direction))
		return;
	ereport(ERROR, (errcode(ERRCODE_OUTBOX_LEASE_LOST),
					errmsg("LEASE_LOST: step \"%s\" of saga %s was answered before",
						   text_to_cstring(report->command.step), shown(run->was.id)),
					errdetail("Nothing would undo what is done now."),
					errhint("Roll back, and end the message with saga.fail.")));
}

Report
report_arguments(FunctionCallInfo fcinfo)
{
	Report report = {};

	report.of_try.id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	report.of_try.token = to_uuid(required_datum(fcinfo, 1, "lease_token"));
	required_datum(fcinfo, 2, "worker_id");
	return report;
}

// code: message
text *
error_of(const text *code, const text *message)
{
	const char *separator = code != nullptr && message != nullptr ? ": " : "";
	const char *error = psprintf("%s%s%s", code != nullptr ? text_to_cstring(code) : "", separator,
								 message != nullptr ? text_to_cstring(message) : "");

	return cut_for_ledger(cstring_to_text(*error != '\0' ? error : "no error was given"));
}

} // namespace

OUTBOX_FUNCTION(outbox_saga_succeed)
{
	Report report = report_arguments(fcinfo);
	Answer answer = {};
	Run run;
	Call call;

	answer.result = DatumGetJsonbP(required_datum(fcinfo, 3, "result"));
	answer.state_patch = object_argument(fcinfo, 4, "state_patch");
	answer.outcome = core::Outcome::succeeded;
	begin_call(&call, "saga.succeed()");
	begin_report_of(&run, &call, &report);
	answer.direction = report.command.direction;
	report.of_try.state = core::Record::dispatched;
	settle_command(fcinfo, &run, &report);
	refuse_forgotten(&run, &report);
	if (report.awaited)
		take_answer(&run, report.place, answer);
	end_call(&call);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_saga_fail)
{
	Report report = report_arguments(fcinfo);
	bool retryable = required_bool(fcinfo, 5, "retryable");
	Answer answer = {};
	Run run;
	Call call;

	report.of_try.details.error_code = optional_text(fcinfo, 3);
	report.of_try.details.error_message = optional_text(fcinfo, 4);
	answer.error = error_of(optional_text(fcinfo, 3), optional_text(fcinfo, 4));
	answer.outcome = retryable ? core::Outcome::unknown : core::Outcome::failed;
	begin_call(&call, "saga.fail()");
	begin_report_of(&run, &call, &report);
	answer.direction = report.command.direction;
	report.of_try.state = retryable ? core::Record::retryable : core::Record::failed;
	settle_command(fcinfo, &run, &report);
	if (!report.of_try.rescheduled && !(retryable && report.late) && report.awaited)
		take_answer(&run, report.place, answer);
	end_call(&call);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_saga_reply)
{
	core::Uuid saga_id = to_uuid(required_datum(fcinfo, 0, "saga_id"));
	text *step = required_text(fcinfo, 1, "step");
	bool succeeded = required_bool(fcinfo, 2, "succeeded");
	Jsonb *result = DatumGetJsonbP(required_datum(fcinfo, 3, "result"));
	text *error = cut_for_ledger(optional_text(fcinfo, 4));
	text *direction = required_text(fcinfo, 5, "direction");
	Answer answer = {};
	Run run;
	Call call;
	int place;

	answer.direction = direction_of(direction);
	if (answer.direction != core::Direction::forward && !equal(direction, cstring_to_text("compensate")))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("direction must be forward or compensate, not \"%s\"", text_to_cstring(direction))));
	answer.outcome = succeeded ? core::Outcome::succeeded : core::Outcome::failed;
	answer.result = succeeded ? result : nullptr;
	if (!succeeded)
		answer.error = error != nullptr && VARSIZE_ANY_EXHDR(error) > 0
						   ? error
						   : cstring_to_text(psprintf("step \"%s\" failed", text_to_cstring(step)));
	begin_call(&call, "saga.reply()");
	begin_run(&run, &call, &saga_id);
	read_steps(&run);
	place = place_of_step(&run, step);
	if (core::is_awaited(run.states[place], answer.direction,
						 PG_ARGISNULL(6) ? run.states[place].rounds : PG_GETARG_INT32(6)))
		take_answer(&run, place, answer);
	end_call(&call);
	PG_RETURN_VOID();
}

} // namespace outbox
