// Times as text: what has an offset from UTC, and what only looks like it.
#include <gtest/gtest.h>

#include "times.h"

namespace {

using outbox::core::has_utc_offset;

TEST(Times, IsoWithOffset)
{
	for (const char *text :
		 {"2030-01-31T12:00:00Z", "2030-01-31T12:00Z", "2030-01-31 12:00:00.123456Z", "2030-01-31T12:00:00.5+01:00",
		  "2030-01-31T12:00:00-1130", "2030-01-31T12:00:00+01", "2030-01-31 12:00-01"})
		EXPECT_TRUE(has_utc_offset(text)) << text;
}

TEST(Times, Others)
{
	for (const char *text :
		 {"", "2030-01-31", "2030-01-31T12:00:00", "2030-01-31T12:00:00.", "2030-01-31T12:00:00.Z", "2030-01-31T12-01",
		  "2030-01-31T12:00:00+", "2030-01-31T12:00:00+1", "2030-01-31T12:00:00+01:0", "2030-01-31T12:00:00+01:00x",
		  "2030-01-31T12:00:00+010", "2030-01-31T12:00:00 Z", "now", "infinity", "2030-01-31 12:00 Europe/Berlin",
		  "12:00 2030-01-31", "20300131T120000Z"})
		EXPECT_FALSE(has_utc_offset(text)) << text;
}

} // namespace
