// See advance.h.

#include "saga/advance.h"

#include "server/json.h"

namespace outbox {

namespace {

void
wait_for_nothing(Instance *saga)
{
	saga->has_deadline = false;
	saga->current_step = nullptr;
}

// The earliest deadline of what the saga waits for.
void
wait_until(Instance *saga, const Step *step)
{
	if (!step->has_deadline || (saga->has_deadline && saga->deadline <= step->deadline))
		return;
	saga->has_deadline = true;
	saga->deadline = step->deadline;
}

// For the steps that are not answered yet.
void
wait_for_the_rest(Run *run)
{
	run->becomes.has_deadline = false;
	for (int i = 0; i < run->count; i++)
		if (run->states[i].status == core::StepStatus::sent || run->states[i].status == core::StepStatus::compensating)
			wait_until(&run->becomes, &run->steps[i]);
}

void
send_step(Run *run, const DefinedStep *defined, TimestampTz now)
{
	int place = add_step(run, defined);
	Step *step = &run->steps[place];

	step->sent_at = now;
	step->has_deadline = defined->timeout != nullptr;
	if (step->has_deadline)
		step->deadline = deadline_from(now, defined);
	put_step_status(run, place, core::StepStatus::sent);
	step->command_id = send_command(run, place, core::Direction::forward);
	run->becomes.current_step = defined->parallel_group != nullptr ? defined->parallel_group : defined->name;
	wait_until(&run->becomes, step);
}

// Only a reply has a timeout here: a completion ends by the queue's ceiling.
void
send_compensation(Run *run, int place)
{
	Step *step = &run->steps[place];

	run->states[place].rounds++;
	step->has_deadline = step->defined->is_replied && step->defined->timeout != nullptr;
	if (step->has_deadline)
		step->deadline = deadline_from(GetCurrentTimestamp(), step->defined);
	step->has_compensated_at = false;
	step->compensation_id = send_command(run, place, core::Direction::compensate);
	step->has_compensation = true;
	put_step_status(run, place, core::StepStatus::compensating);
	wait_for_nothing(&run->becomes);
	run->becomes.current_step = step->defined->name;
	wait_until(&run->becomes, step);
}

void
act_on(Run *run, const core::Next &next, text *error)
{
	switch (next.act)
	{
		case core::Next::wait:
			wait_for_the_rest(run);
			return;
		case core::Next::begin_stage:
			begin_stage(run, next.which);
			return;
		case core::Next::complete:
			wait_for_nothing(&run->becomes);
			run->becomes.status = core::SagaStatus::completed;
			return;
		case core::Next::give_up:
			begin_compensation(run, error);
			return;
		case core::Next::compensate:
			send_compensation(run, next.which);
			return;
		case core::Next::fail:
			wait_for_nothing(&run->becomes);
			run->becomes.status = core::SagaStatus::failed;
			return;
	}
}

const char *
event_of_status(core::StepStatus status)
{
	switch (status)
	{
		case core::StepStatus::succeeded:
			return "step_executed";
		case core::StepStatus::compensated:
			return "compensated";
		case core::StepStatus::uncompensated:
			return "compensation_failed";
		default:
			return "state_changed";
	}
}

Jsonb *
metadata_of(core::StepStatus status, const text *error, bool late)
{
	JsonObject metadata = begin_object();

	put_field(&metadata, "step_status", core::label(status));
	if (error != nullptr)
		put_field(&metadata, "error", error);
	if (late)
		put_field(&metadata, "late", true);
	return end_object(&metadata);
}

void
note_answer(Run *run, int place, const Answer &answer)
{
	Step *step = &run->steps[place];
	TimestampTz now = GetCurrentTimestamp();

	if (answer.direction == core::Direction::forward)
	{
		run->states[place].answered = answer.outcome != core::Outcome::unknown;
		step->answered_at = now;
		step->result = answer.result;
	}
	else
	{
		step->has_compensated_at = true;
		step->compensated_at = now;
		run->becomes.retry_count += answer.outcome != core::Outcome::succeeded ? 1 : 0;
	}
	if (answer.error != nullptr)
		step->error = answer.error;
	if (answer.state_patch != nullptr)
		run->becomes.state = JsonbPGetDatum(merged(DatumGetJsonbP(run->becomes.state), answer.state_patch));
}

} // namespace

void
take_answer(Run *run, int place, const Answer &answer)
{
	core::Effect effect = core::effect(run->states[place], answer.direction, answer.outcome);
	Step *step = &run->steps[place];

	if (effect.ignored)
		return;
	note_answer(run, place, answer);
	if (effect.takes_back)
		withdraw_command(run, step->compensation_id, "its command was answered late");
	put_step_status(run, place, effect.to);
	if (effect.goes_on)
		act_on(run, core::what_next(run->becomes.status, effect.to, run->states, run->count, run->definition->stages),
			   answer.error);
	write_run(run, effect.goes_on ? event_of_status(effect.to) : "state_changed", step->defined->name,
			  metadata_of(effect.to, answer.error, !effect.goes_on));
}

void
begin_stage(Run *run, int stage)
{
	TimestampTz now = GetCurrentTimestamp();

	wait_for_nothing(&run->becomes);
	for (int i = 0; i < run->definition->count; i++)
		if (run->definition->steps[i].stage == stage)
			send_step(run, &run->definition->steps[i], now);
}

void
begin_compensation(Run *run, text *error)
{
	run->becomes.status = core::SagaStatus::compensating;
	run->becomes.last_error = error;
	run->becomes.retry_count++;
	for (int i = 0; i < run->count; i++)
	{
		if (run->states[i].status != core::StepStatus::sent)
			continue;
		withdraw_command(run, run->steps[i].command_id, text_to_cstring(error));
		run->steps[i].error = error;
		put_step_status(run, i, core::StepStatus::unknown);
	}
	compensate_next(run);
}

void
compensate_next(Run *run)
{
	act_on(run, core::next_to_undo(run->states, run->count), nullptr);
}

} // namespace outbox
