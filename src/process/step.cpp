// See step.h.

#include "process/step.h"

namespace outbox {

namespace {

constexpr int passing_failures = 6;

bool
is_missing(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_UNDEFINED_TABLE || error->sqlerrcode == ERRCODE_UNDEFINED_SCHEMA;
}

// That the extension is being dropped is no fault. If it is not, and an object of it is
// missing, that is one.
bool
is_passing(const Step *step, const ErrorData *error)
{
	return is_lock_wait(error) || (is_missing(error) && step->missing < passing_failures);
}

// The state of a process is that of its worst step.
void
report_troubles(Step *step)
{
	bool told = false;

	change_status(step->report, [&](ProcessStatus *) { step->trouble->failures = step->failures; });
	for (const Trouble &trouble : step->report->troubles)
		told |= trouble.told;
	set_activity(step->report, told                              ? Activity::in_trouble
							   : most_failures(step->report) > 0 ? Activity::waiting
																 : Activity::running);
}

void
failed(Step *step, const ErrorData *error)
{
	const char *what = psprintf("could not %s: %s", step->purpose, error->message);

	step->retry_at = steady_us() + Min(pause_us(++step->failures), is_lock_wait(error) ? USECS_PER_SEC : PG_INT64_MAX);
	step->missing += is_missing(error);
	// What is over at the next try was no error.
	if (!is_passing(step, error) || step->failures >= passing_failures)
		set_error(step->report, what);
	if (!step->trouble->told && !is_passing(step, error))
	{
		step->trouble->told = true;
		ereport(LOG,
				(errcode(error->sqlerrcode), errmsg("outbox worker of database \"%s\" %s", process_database(), what),
				 error->detail != nullptr ? errdetail_internal("%s", error->detail) : 0,
				 errhint("It tries again after growing pauses and logs when it succeeds.")));
	}
	report_troubles(step);
	if (!is_lock_wait(error))
		set_activity(step->report, Activity::in_trouble);
}

void
succeeded(Step *step)
{
	if (step->failures == 0 && !step->trouble->told)
		return;
	if (step->trouble->told)
		ereport(LOG, (errmsg("outbox worker of database \"%s\" can %s again", process_database(), step->purpose)));
	step->trouble->told = false;
	step->failures = step->missing = 0;
	report_troubles(step);
}

} // namespace

Step
make_step(ProcessStatus *report, int trouble, const char *purpose, const char *lock_timeout)
{
	return {report, &report->troubles[trouble], purpose, lock_timeout, 0, 0, 0};
}

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

} // namespace outbox
