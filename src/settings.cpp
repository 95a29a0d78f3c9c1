// See settings.h. An interval is checked where it is used, not when it is set: a check
// that raises would end the postmaster on reload.

#include "settings.h"

#include "args.h"

namespace outbox {

namespace {

char *partition_interval;

constexpr int64 hour_us = USECS_PER_HOUR;
constexpr int64 ten_years_us = 3653 * USECS_PER_DAY;

}	// namespace

void
define_settings()
{
	DefineCustomStringVariable("outbox.partition_interval",
							   "Length of the partitions of messages and attempts that outbox.maintain() makes.",
							   "An interval of fixed length: days, hours.", &partition_interval, "1 week", PGC_SUSET, 0,
							   nullptr, nullptr, nullptr);
	MarkGUCPrefixReserved("outbox");
}

int64
partition_interval_ms()
{
	Interval *interval = DatumGetIntervalP(DirectFunctionCall3(
		interval_in, CStringGetDatum(partition_interval), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	int64 us = interval_us(interval, "outbox.partition_interval");

	if (interval->month != 0 || us < hour_us || us > ten_years_us)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("outbox.partition_interval must be between 1 hour and 3653 days, not \"%s\"",
							   partition_interval),
						errhint("Months and years have no fixed length: give days.")));
	return us / 1000;
}

}	// namespace outbox
