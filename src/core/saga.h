// Sagas without a database: the transitions of sagas and of their steps, and what comes next.
//
// Guarantees: only the transitions in these two tables happen; saga.transitions and docs/saga.md show them. What an
// answer makes of its step, and what the saga does then, depends on the statuses alone.
#pragma once

#include <cstddef>
#include <string_view>

namespace outbox::core {

enum class SagaStatus { absent, started, running, compensating, completed, failed, unheard_of };
enum class StepStatus {
	absent,
	sent,
	succeeded,
	failed,
	unknown,
	compensating,
	compensated,
	uncompensated,
	unheard_of
};

struct SagaTransition {
	SagaStatus from;
	SagaStatus to;
	const char *by;
};
struct StepTransition {
	StepStatus from;
	StepStatus to;
	const char *by;
};

extern const SagaTransition saga_transitions[];
extern const size_t saga_transition_count;
extern const StepTransition step_transitions[];
extern const size_t step_transition_count;

bool may_follow(SagaStatus from, SagaStatus to) noexcept;
bool may_follow(StepStatus from, StepStatus to) noexcept;

// As in the tables. A text that is no status is unheard_of, which follows nothing.
const char *label(SagaStatus status) noexcept;
const char *label(StepStatus status) noexcept;
SagaStatus saga_status(std::string_view label) noexcept;
StepStatus step_status(std::string_view label) noexcept;

inline bool
has_ended(SagaStatus status) noexcept
{
	return status == SagaStatus::completed || status == SagaStatus::failed;
}

// A step whose command was sent.
struct StepState {
	StepStatus status;
	bool answered; // its command
	int rounds;    // of its compensation
	int stage;
	bool can_undo; // it has a compensation
};

enum class Direction { forward, compensate };
enum class Outcome { succeeded, failed, unknown };

// Whether an answer changes anything: the first one to a command, and one to the last compensation that was sent.
bool is_awaited(const StepState &step, Direction direction, int round) noexcept;
// Whether the saga has gone on without the answer to the command.
bool is_late(const StepState &step, Direction direction) noexcept;
// Whether the work that a success reports would stay, with nothing to undo it: the command was answered before, and the
// step does not count as done.
bool would_be_forgotten(const StepState &step, Direction direction) noexcept;
// Whether the saga waits for the answer, so that it can be given up.
bool is_waited_for(const StepState &step, Direction direction, int round) noexcept;

// What an answer that is awaited makes of its step.
struct Effect {
	bool ignored;
	StepStatus to;
	bool takes_back; // the compensation, which was sent
	bool goes_on;    // the saga does what comes next
};
Effect effect(const StepState &step, Direction direction, Outcome outcome) noexcept;

struct Next {
	enum Act {
		wait,
		begin_stage, // number `which`
		complete,
		give_up,    // the steps that are sent; then ask again, as compensating
		compensate, // the step at place `which`
		fail
	} act;
	int which;
};
// After a step got a status. steps: those that were begun, in the order of the definition; stages: of the definition.
Next what_next(SagaStatus saga, StepStatus got, const StepState *steps, int count, int stages) noexcept;
// The same where steps are undone: the last one first, one at a time.
Next next_to_undo(const StepState *steps, int count) noexcept;

} // namespace outbox::core
