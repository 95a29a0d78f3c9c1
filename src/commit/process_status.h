// The status of a background process in shared memory.
//
// Guarantee: only the process writes it; others read it, under one lock, also after the process has ended.
#pragma once

#include "commit/shared.h"

namespace outbox {

// Takes a status. False if a live process has it.
bool begin_status(ProcessStatus *report);
void end_status(ProcessStatus *report);
// The failures in a row of its worst step.
int most_failures(const ProcessStatus *report);
void set_activity(ProcessStatus *report, Activity activity);
void set_error(ProcessStatus *report, const char *message);
void forget_errors(ProcessStatus *report);
// Changes it under the lock.
template <typename Change>
void
change_status(ProcessStatus *report, const Change &change)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	change(report);
	LWLockRelease(shared->lock);
}

} // namespace outbox
