// See step.h.

#include "step.h"

namespace outbox {

namespace {

constexpr int passing_failures = 6;

// It is no fault that the extension is dropped in this moment. If it is not, and something
// of it is missing all the same, it is.
bool
is_passing(const Step *step, const ErrorData *error)
{
	return is_lock_wait(error) ||
		   ((error->sqlerrcode == ERRCODE_UNDEFINED_TABLE || error->sqlerrcode == ERRCODE_UNDEFINED_SCHEMA) &&
			step->failures < passing_failures);
}

void
failed(Step *step, const ErrorData *error)
{
	const char *what = psprintf("could not %s: %s", step->purpose, error->message);
	bool passing;

	step->retry_at = steady_us() + Min(pause_us(++step->failures), is_lock_wait(error) ? USECS_PER_SEC : PG_INT64_MAX);
	passing = is_passing(step, error);
	report_error(step->report, what);
	change_report(step->report, [&](Report *report) { report->failures = step->failures; });
	report_activity(step->report, passing ? Activity::waiting : Activity::in_trouble);
	if (!step->told && !passing)
		ereport(LOG, (errcode(error->sqlerrcode), errmsg("outbox worker %s", what),
					  error->detail != nullptr ? errdetail_internal("%s", error->detail) : 0,
					  errhint("It tries again after a growing pause and tells when it has succeeded.")));
	step->told = step->told || !passing;
}

void
succeeded(Step *step)
{
	if (step->failures == 0)
		return;
	if (step->told)
		ereport(LOG, (errmsg("outbox worker can %s again", step->purpose)));
	step->told = false;
	step->failures = 0;
	change_report(step->report, [](Report *report) { report->failures = 0; });
	report_activity(step->report, Activity::running);
}

}	// namespace

bool
is_lock_wait(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
}

void
use_lock_timeout(const char *timeout)
{
	static const char *in_use;

	if (in_use != timeout)
		SetConfigOption("lock_timeout", timeout, PGC_SUSET, PGC_S_OVERRIDE);
	in_use = timeout;
}

int64
until(const Step *step, TimestampTz event, TimestampTz now)
{
	int64 us = event == DT_NOEND ? PG_INT64_MAX : Max(event - now, 0);

	return step->failures > 0 ? Max(us, step->retry_at - steady_us()) : us;
}

void
begin_step(const Step *step)
{
	pgstat_report_activity(STATE_RUNNING, step->purpose);
	use_lock_timeout(step->lock_timeout);
}

void
end_step(Step *step, const ErrorData *error)
{
	if (error != nullptr)
		failed(step, error);
	else
		succeeded(step);
}

}	// namespace outbox
