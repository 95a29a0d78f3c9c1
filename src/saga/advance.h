// What a saga does when a step got an answer, or is given up.
//
// Guarantees: what comes next is decided by core/saga.h from the statuses of the steps under the saga's lock. All that
// follows from one answer is one change: its messages, its steps, the saga and one row of the audit log.
#pragma once

#include "saga/command.h"

namespace outbox {

struct Answer {
	core::Direction direction;
	core::Outcome outcome;
	Jsonb *result;      // nullptr = none
	Jsonb *state_patch; // nullptr = {}
	text *error;        // nullptr = none
};

// Of the step at that place, which waits for it (core::is_awaited).
void take_answer(Run *run, int place, const Answer &answer);

// Sends the commands of a stage.
void begin_stage(Run *run, int stage);
// Gives up the steps that have not answered, and sends the first compensation. Writes nothing yet.
void begin_compensation(Run *run, text *error);
// Sends the next compensation, unless one is on its way; the saga has failed if there is none. Writes nothing yet.
void compensate_next(Run *run);

} // namespace outbox
