// See settings.h.

#include "settings.h"

namespace outbox {

namespace {

constexpr int64 hour_us = USECS_PER_HOUR;
constexpr int64 most_us = 3653 * USECS_PER_DAY;	// ten years

char *partition_interval;
char *idempotency_window;

// As the type's input function does, but false instead of an ERROR.
bool
parse_interval(const char *value, Interval *interval)
{
	char buffer[256];
	char *fields[MAXDATEFIELDS];
	int types[MAXDATEFIELDS];
	int count;
	int kind;
	struct pg_itm_in parsed = {};

	return ParseDateTime(value, buffer, sizeof(buffer), fields, types, MAXDATEFIELDS, &count) == 0 &&
		   DecodeInterval(fields, types, count, INTERVAL_FULL_RANGE, &kind, &parsed) == 0 && kind == DTK_DELTA &&
		   itmin2interval(&parsed, interval) == 0;
}

// Microseconds of an interval of fixed length from one hour to ten years, or 0.
int64
fixed_us(const char *value)
{
	Interval interval;

	if (!parse_interval(value, &interval) || interval.month != 0 || Abs(interval.day) > most_us / USECS_PER_DAY ||
		interval.time < -most_us || interval.time > most_us)
		return 0;

	int64 us = interval.day * USECS_PER_DAY + interval.time;

	return us >= hour_us && us <= most_us ? us : 0;
}

bool
check_interval(char **value, void **, GucSource)
{
	if (fixed_us(*value) != 0)
		return true;
	GUC_check_errdetail("It must be an interval between 1 hour and 3653 days.");
	GUC_check_errhint("Months and years have no fixed length: give days.");
	return false;
}

bool
check_interval_or_empty(char **value, void **extra, GucSource source)
{
	return (*value)[0] == '\0' || check_interval(value, extra, source);
}

}	// namespace

void
define_settings()
{
	DefineCustomStringVariable("outbox.partition_interval",
							   "Length of the partitions of messages and attempts that outbox.maintain() makes.",
							   nullptr, &partition_interval, "1 week", PGC_SUSET, 0, check_interval, nullptr, nullptr);
	DefineCustomStringVariable("outbox.idempotency_window",
							   "How long idempotency keys and event ids are remembered; empty means for ever.",
							   nullptr, &idempotency_window, "", PGC_SUSET, 0, check_interval_or_empty, nullptr,
							   nullptr);
	MarkGUCPrefixReserved("outbox");
}

int64
partition_interval_ms()
{
	return fixed_us(partition_interval) / 1000;
}

int64
idempotency_window_ms()
{
	return idempotency_window[0] == '\0' ? PG_INT64_MAX : fixed_us(idempotency_window) / 1000;
}

}	// namespace outbox
