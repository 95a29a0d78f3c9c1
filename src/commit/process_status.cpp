// See process_status.h.

#include "commit/process_status.h"

#include "server/encoding.h"

namespace outbox {

bool
begin_status(ProcessStatus *report)
{
	bool is_free;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	is_free = report->pid == 0;
	if (is_free)
	{
		report->pid = MyProcPid;
		report->activity = Activity::running;
		report->since = GetCurrentTimestamp();
		report->next_wake = 0;
	}
	LWLockRelease(shared->lock);
	return is_free;
}

void
end_status(ProcessStatus *report)
{
	change_status(report, [](ProcessStatus *mine) {
		mine->pid = 0;
		mine->activity = Activity::stopped;
		mine->since = GetCurrentTimestamp();
		mine->next_wake = 0;
	});
}

int
most_failures(const ProcessStatus *report)
{
	int most = 0;

	for (const Trouble &trouble : report->troubles)
		most = Max(most, trouble.failures);
	return most;
}

void
set_activity(ProcessStatus *report, Activity activity)
{
	if (report->activity == activity)
		return;
	change_status(report, [&](ProcessStatus *mine) {
		mine->activity = activity;
		mine->since = GetCurrentTimestamp();
	});
}

void
set_error(ProcessStatus *report, const char *message)
{
	change_status(report, [&](ProcessStatus *mine) {
		strlcpy(mine->error, message, sizeof(mine->error));
		mine->error[clipped_length(message, static_cast<int>(strlen(message)), error_length - 1)] = '\0';
		mine->error_at = GetCurrentTimestamp();
	});
}

void
forget_errors(ProcessStatus *report)
{
	change_status(report, [](ProcessStatus *mine) {
		memset(mine->troubles, 0, sizeof(mine->troubles));
		mine->error_at = 0;
	});
}

} // namespace outbox
