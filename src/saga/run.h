// A saga that the orchestrator runs, in the hands of one call: its row, locked, and its steps.
//
// Guarantees: no step is read before the saga is locked, so what is decided here rests on what is committed. The rows
// of the saga and of its steps are changed in memory, and written once, in the end.
#pragma once

#include "saga/definition.h"
#include "saga/instance.h"

namespace outbox {

// A step whose command was sent. Its status, its rounds and whether it was answered are in Run::states.
struct Step {
	bool is_stored; // as `row`
	StoredRow row;
	bool changed;
	const DefinedStep *defined;
	core::Uuid command_id;
	bool has_compensation;
	core::Uuid compensation_id;
	Jsonb *result; // nullptr = none
	text *error;   // nullptr = none
	bool has_deadline;
	TimestampTz deadline;
	TimestampTz sent_at;
	TimestampTz answered_at;
	bool has_compensated_at;
	TimestampTz compensated_at;
};

struct Run {
	Call *call;
	StoredRow row;
	Instance was; // as it was locked
	Instance becomes;
	const Definition *definition;
	Step *steps;             // in the order of the definition, with room for all
	core::StepState *states; // theirs
	int count;
	Jsonb *headers; // that saga.start was given, perhaps with those of a command; nullptr = not read yet
	text *id_text;
	int refusal; // SQLSTATE of: it is only stored, or has not begun a step
};

// Locks the saga. P7007 if there is none.
void begin_run(Run *run, Call *call, const core::Uuid *saga_id);
// One that is not stored yet, without steps.
void begin_new_run(Run *run, Call *call, const Instance *saga);
// 55000, or Run::refusal, if the saga is only stored.
void read_steps(Run *run);
// The place of a step; 55000 if it was not begun.
int place_of_step(const Run *run, const text *name);
// A new one, with the status absent, behind the others.
int add_step(Run *run, const DefinedStep *defined);
// P7008 if it cannot follow.
void put_step_status(Run *run, int place, core::StepStatus to);

Jsonb *headers_of_run(Run *run);
// The role that the extension belongs to.
text *saga_owner(Call *call);

// Writes what has changed, as one change.
void write_run(Run *run, const char *event_type, const text *step, Jsonb *metadata);
// The same for a new saga.
void write_new_run(Run *run);

} // namespace outbox
