// The repeated work of a background process, each part with its own failures.
//
// Guarantees: a step that failed is tried again after a pause that grows with the failures in a row.
// The log gets one line when trouble begins and one when it ends, also if the process is replaced in
// between. A wait for a lock, or an extension that is being dropped, is no trouble. run_step() runs
// the step in a separate transaction.
#pragma once

#include "process/process.h"
#include "server/boundary.h"

namespace outbox {

struct Step {
	ProcessStatus *report;
	Trouble *trouble; // one of the report's: counts the failures in a row
	const char *purpose;
	const char *lock_timeout;
	int missing;    // failures because something of the extension was not there
	int64 retry_at; // steady clock
};

Step make_step(ProcessStatus *report, int trouble, const char *purpose, const char *lock_timeout);
// For a process that starts. Troubles that its predecessor logged are kept.
void clear_failures(ProcessStatus *report);

bool is_lock_wait(const ErrorData *error);
// Until the next step, or the next call.
void use_lock_timeout(const char *timeout);

inline bool
has_failed(const Step *step)
{
	return step->trouble->failures > 0;
}

// Whether it has failed and its pause is not over.
inline bool
is_resting(const Step *step)
{
	return has_failed(step) && steady_us() < step->retry_at;
}

// Whether it has failed and is to be tried again now.
inline bool
is_retry_due(const Step *step)
{
	return has_failed(step) && steady_us() >= step->retry_at;
}

// How long to wait before it can act on an event of that time.
int64 until(const Step *step, TimestampTz event, TimestampTz now);

void begin_step(const Step *step);
// sqlstate: 0 = unknown. detail: for the log, or nullptr.
void step_failed(Step *step, int sqlstate, const char *message, const char *detail);
void step_succeeded(Step *step);
// A failure that the next try is likely to end: counted, not told.
void step_delayed(Step *step);

// Log the beginning of a trouble, once, and its end.
void begin_trouble(Trouble *trouble, int sqlstate, const char *what, const char *detail);
void end_trouble(Trouble *trouble, const char *what);

// True if it succeeded; false also while it rests.
template <typename Body>
bool
run_step(Step *step, const Body &body)
{
	ErrorData *error;

	if (is_resting(step))
		return false;
	begin_step(step);
	error = in_transaction(body);
	if (error != nullptr)
		step_failed(step, error->sqlerrcode, error->message, error->detail);
	else
		step_succeeded(step);
	return error == nullptr;
}

} // namespace outbox
