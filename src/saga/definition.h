// Definitions of sagas, which a session remembers.
//
// Guarantees: a version never changes, so what is remembered stays true. Only what is committed is remembered: what
// this transaction has defined may be rolled back, and its number be taken by another definition. A change of the
// tables, such as DROP EXTENSION, forgets all. After a change of rows by hand, begin new sessions.
#pragma once

#include "saga/tables.h"

namespace outbox {

struct DefinedStep {
	int step_no;
	int stage;
	text *name;
	text *command;
	text *queue;
	text *compensation; // nullptr = none
	Interval *timeout;  // nullptr = none
	bool is_replied;    // answer is reply
	int max_attempts;   // 0 = the queue's
	text *parallel_group;
};

struct Definition {
	text *saga_type;
	int version;
	bool audits_changes; // audit is diff
	DefinedStep *steps;  // by step_no
	int count;
	int stages;

	// of the session
	MemoryContext context;
	Definition *next;
	int users;
	bool outdated;
};

// For as long as the call lasts. 55000 if it is gone.
const Definition *definition_of(Call *call, const text *saga_type, int version);
// 0: none.
int newest_version(Call *call, const text *saga_type);

const DefinedStep *defined_step(const Definition *definition, int step_no);

} // namespace outbox
