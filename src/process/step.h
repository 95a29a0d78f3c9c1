// The repeated work of a background process, each part with its own failures.
//
// Guarantees: each run is a separate transaction; after a failure it is tried again after a
// pause that grows with the failures in a row. The log has one line when trouble begins
// and one when it ends, even if the process was replaced in between. A wait for
// a lock, or an extension that is being dropped, is no trouble.
#pragma once

#include "process/process.h"
#include "server/boundary.h"

namespace outbox {

struct Step {
	ProcessStatus *report; // what it says goes there
	Trouble *trouble;      // one of the report's
	const char *purpose;
	const char *lock_timeout;
	int failures;   // in a row
	int missing;    // of these, because something of the extension was not there
	int64 retry_at; // steady clock
};

Step make_step(ProcessStatus *report, int trouble, const char *purpose, const char *lock_timeout);

bool is_lock_wait(const ErrorData *error);
// Until the next step, or the next call.
void use_lock_timeout(const char *timeout);

// Whether it has failed and its pause is not over.
inline bool
is_resting(const Step *step)
{
	return step->failures > 0 && steady_us() < step->retry_at;
}

// The time from now until it may act on an event of that time.
int64 until(const Step *step, TimestampTz event, TimestampTz now);

void begin_step(const Step *step);
void end_step(Step *step, const ErrorData *error);

// True when it went well; false also while it rests.
template <typename Body>
bool
run_step(Step *step, const Body &body)
{
	ErrorData *error;

	if (is_resting(step))
		return false;
	begin_step(step);
	error = in_transaction(body);
	end_step(step, error);
	return error == nullptr;
}

} // namespace outbox
