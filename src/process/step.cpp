// See step.h.

#include "process/step.h"

namespace outbox {

namespace {

constexpr int passing_failures = 6;

bool
is_missing(int sqlstate)
{
	return sqlstate == ERRCODE_UNDEFINED_TABLE || sqlstate == ERRCODE_UNDEFINED_SCHEMA;
}

// While the extension is being dropped, missing objects are no fault. If they stay missing, they are.
bool
is_passing(const Step *step, int sqlstate)
{
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || (is_missing(sqlstate) && step->missing < passing_failures);
}

void
set_failures(Step *step, int failures)
{
	change_status(step->report, [&](ProcessStatus *) { step->trouble->failures = failures; });
}

// The state of a process is that of its worst step.
void
report_troubles(ProcessStatus *report)
{
	bool told = false;

	for (const Trouble &trouble : report->troubles)
		told |= trouble.told;
	set_activity(report, told                        ? Activity::in_trouble
						 : most_failures(report) > 0 ? Activity::waiting
													 : Activity::running);
}

} // namespace

Step
make_step(ProcessStatus *report, int trouble, const char *purpose, const char *lock_timeout)
{
	return {report, &report->troubles[trouble], purpose, lock_timeout, 0, 0};
}

void
clear_failures(ProcessStatus *report)
{
	change_status(report, [](ProcessStatus *mine) {
		for (Trouble &trouble : mine->troubles)
			trouble.failures = 0;
	});
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

	return has_failed(step) ? Max(us, step->retry_at - steady_us()) : us;
}

void
begin_trouble(Trouble *trouble, int sqlstate, const char *what, const char *detail)
{
	if (trouble->told)
		return;
	trouble->told = true;
	ereport(LOG, (sqlstate != 0 ? errcode(sqlstate) : 0, errmsg("%s %s", process_name(), what),
				  detail != nullptr ? errdetail_internal("%s", detail) : 0,
				  errhint("It tries again after growing pauses and logs when it succeeds.")));
}

void
end_trouble(Trouble *trouble, const char *what)
{
	if (trouble->told)
		ereport(LOG, (errmsg("%s %s", process_name(), what)));
	trouble->told = false;
}

void
begin_step(const Step *step)
{
	pgstat_report_activity(STATE_RUNNING, step->purpose);
	use_lock_timeout(step->lock_timeout);
}

void
step_failed(Step *step, int sqlstate, const char *message, const char *detail)
{
	const char *what = psprintf("could not %s: %s", step->purpose, message);
	bool locked = sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
	int failures = step->trouble->failures + 1;

	set_failures(step, failures);
	step->retry_at = steady_us() + Min(pause_us(failures), locked ? USECS_PER_SEC : PG_INT64_MAX);
	step->missing += is_missing(sqlstate);
	// A failure that may be over at the next try is no error.
	if (!is_passing(step, sqlstate) || failures >= passing_failures)
		set_error(step->report, what);
	if (!is_passing(step, sqlstate))
		begin_trouble(step->trouble, sqlstate, what, detail);
	report_troubles(step->report);
	if (!locked)
		set_activity(step->report, Activity::in_trouble);
}

void
step_succeeded(Step *step)
{
	if (!has_failed(step) && !step->trouble->told)
		return;
	end_trouble(step->trouble, psprintf("can %s again", step->purpose));
	step->missing = 0;
	set_failures(step, 0);
	report_troubles(step->report);
}

void
step_delayed(Step *step)
{
	set_failures(step, step->trouble->failures + 1);
	report_troubles(step->report);
}

} // namespace outbox
