// Guarantees of saga.h: the two tables below are all that can happen.
#include "saga.h"

#include <algorithm>
#include <iterator>

namespace outbox::core {

const SagaTransition saga_transitions[] = {
	{SagaStatus::absent, SagaStatus::started, "create"},
	{SagaStatus::absent, SagaStatus::running, "start: the first commands are sent"},
	{SagaStatus::started, SagaStatus::running, "save"},
	{SagaStatus::started, SagaStatus::failed, "save"},
	{SagaStatus::running, SagaStatus::running, "save; a step succeeded"},
	{SagaStatus::running, SagaStatus::compensating, "save; a step failed or was given up; abort"},
	{SagaStatus::running, SagaStatus::completed, "save; all steps succeeded"},
	{SagaStatus::compensating, SagaStatus::compensating, "save; a step was compensated, or could not be"},
	{SagaStatus::compensating, SagaStatus::failed, "save; nothing is left to compensate"},
};

const StepTransition step_transitions[] = {
	{StepStatus::absent, StepStatus::sent, "its command is sent"},
	{StepStatus::sent, StepStatus::succeeded, "answer"},
	{StepStatus::sent, StepStatus::failed, "answer"},
	{StepStatus::sent, StepStatus::unknown,
	 "given up: timeout, dead letter, ceiling, abort, failure of a parallel step"},
	{StepStatus::unknown, StepStatus::succeeded, "late answer"},
	{StepStatus::unknown, StepStatus::failed, "late answer"},
	{StepStatus::unknown, StepStatus::compensating, "its compensation is sent"},
	{StepStatus::succeeded, StepStatus::compensating, "its compensation is sent"},
	{StepStatus::compensating, StepStatus::compensated, "answer"},
	{StepStatus::compensating, StepStatus::uncompensated, "its compensation gave up"},
	{StepStatus::compensating, StepStatus::succeeded, "late answer: it is compensated again"},
	{StepStatus::compensated, StepStatus::succeeded, "late answer: it is compensated again"},
	{StepStatus::uncompensated, StepStatus::succeeded, "late answer: it is compensated again"},
	{StepStatus::uncompensated, StepStatus::compensated, "late answer of the compensation"},
	{StepStatus::uncompensated, StepStatus::unknown, "retry"},
};

const size_t saga_transition_count = std::size(saga_transitions);
const size_t step_transition_count = std::size(step_transitions);

bool
may_follow(SagaStatus from, SagaStatus to) noexcept
{
	return std::any_of(std::begin(saga_transitions), std::end(saga_transitions),
					   [=](const SagaTransition &row) { return row.from == from && row.to == to; });
}

bool
may_follow(StepStatus from, StepStatus to) noexcept
{
	return std::any_of(std::begin(step_transitions), std::end(step_transitions),
					   [=](const StepTransition &row) { return row.from == from && row.to == to; });
}

namespace {

// In the order of the enumerations.
constexpr std::string_view saga_labels[] = {"absent", "started", "running", "compensating", "completed", "failed"};
constexpr std::string_view step_labels[] = {"absent",  "sent",         "succeeded",   "failed",
											"unknown", "compensating", "compensated", "uncompensated"};

static_assert(std::size(saga_labels) == static_cast<size_t>(SagaStatus::unheard_of));
static_assert(std::size(step_labels) == static_cast<size_t>(StepStatus::unheard_of));

template <typename Status, size_t n>
Status
status_in(const std::string_view (&labels)[n], std::string_view label) noexcept
{
	return static_cast<Status>(std::find(labels, labels + n, label) - labels);
}

template <typename Status, size_t n>
const char *
label_in(const std::string_view (&labels)[n], Status status) noexcept
{
	const size_t i = static_cast<size_t>(status);

	return i < n ? labels[i].data() : "unheard of";
}

} // namespace

const char *
label(SagaStatus status) noexcept
{
	return label_in(saga_labels, status);
}

const char *
label(StepStatus status) noexcept
{
	return label_in(step_labels, status);
}

SagaStatus
saga_status(std::string_view label) noexcept
{
	return status_in<SagaStatus>(saga_labels, label);
}

StepStatus
step_status(std::string_view label) noexcept
{
	return status_in<StepStatus>(step_labels, label);
}

bool
is_awaited(const StepState &step, Direction direction, int round) noexcept
{
	if (direction == Direction::forward)
		return !step.answered;
	return (step.status == StepStatus::compensating || step.status == StepStatus::uncompensated) &&
		   step.rounds == round;
}

bool
is_late(const StepState &step, Direction direction) noexcept
{
	return direction == Direction::forward && !step.answered && step.status != StepStatus::sent;
}

bool
would_be_forgotten(const StepState &step, Direction direction) noexcept
{
	return direction == Direction::forward && step.answered && step.status != StepStatus::succeeded;
}

bool
is_waited_for(const StepState &step, Direction direction, int round) noexcept
{
	return step.status == (direction == Direction::forward ? StepStatus::sent : StepStatus::compensating) &&
		   is_awaited(step, direction, round);
}

namespace {

Effect
effect_of_command(const StepState &step, Outcome outcome) noexcept
{
	const bool is_sent_back = step.status == StepStatus::compensating;

	// Too late, and not done: a compensation that is on its way need not be taken back.
	if (outcome == Outcome::failed &&
		(is_sent_back || step.status == StepStatus::compensated || step.status == StepStatus::uncompensated))
		return {false, step.status, false, false};
	if (outcome == Outcome::succeeded)
		return {false, StepStatus::succeeded, is_sent_back, true};
	return {false, outcome == Outcome::failed ? StepStatus::failed : StepStatus::unknown, is_sent_back, true};
}

} // namespace

Effect
effect(const StepState &step, Direction direction, Outcome outcome) noexcept
{
	if (direction == Direction::forward)
		return effect_of_command(step, outcome);
	if (outcome == Outcome::succeeded)
		return {false, StepStatus::compensated, false, true};
	return {step.status != StepStatus::compensating, StepStatus::uncompensated, false, true};
}

Next
next_to_undo(const StepState *steps, int count) noexcept
{
	int last = -1;

	for (int i = 0; i < count; i++)
	{
		if (steps[i].status == StepStatus::compensating)
			return {Next::wait, i};
		if (steps[i].can_undo && (steps[i].status == StepStatus::succeeded || steps[i].status == StepStatus::unknown))
			last = i;
	}
	return {last >= 0 ? Next::compensate : Next::fail, last};
}

namespace {

Next
next_forward(const StepState *steps, int count, int stages) noexcept
{
	int stage = 0;

	for (int i = 0; i < count; i++)
	{
		if (steps[i].status == StepStatus::sent)
			return {Next::wait, i};
		stage = std::max(stage, steps[i].stage);
	}
	if (stage < stages)
		return {Next::begin_stage, stage + 1};
	return {Next::complete, -1};
}

} // namespace

Next
what_next(SagaStatus saga, StepStatus got, const StepState *steps, int count, int stages) noexcept
{
	if (saga != SagaStatus::running)
		return next_to_undo(steps, count);
	if (got == StepStatus::succeeded)
		return next_forward(steps, count, stages);
	return {Next::give_up, -1};
}

} // namespace outbox::core
