// The table of the sink postgres: every SQLSTATE once, and classes where they matter.
#include <gtest/gtest.h>

#include "core/taxonomy.h"
#include "sinks/postgres_codes.h"

#include <set>

namespace {

using namespace relay;

Fault
fault_of(std::string_view sqlstate)
{
	return Taxonomy(postgres::codes()).of(postgres::code_of(sqlstate));
}

TEST(PostgresCodes, EachStandsOnceWithAReason)
{
	std::set<std::string_view> seen;
	for (const Code &code : postgres::codes())
	{
		SCOPED_TRACE(code.code);
		EXPECT_TRUE(seen.insert(code.code).second);
		EXPECT_TRUE(code.code.starts_with("POSTGRES_") || code.code.size() == 14);
		EXPECT_GT(code.why.size(), 5u);
	}
	EXPECT_GT(seen.size(), 261u); // the SQLSTATEs of PostgreSQL 15
}

TEST(PostgresCodes, Classes)
{
	for (const char *message :
		 {"22P02", "22021", "22P05", "23502", "23505", "23514", "23P01", "44000", "54000", "P8000"})
		EXPECT_EQ(fault_of(message), Fault::message) << message;
	for (const char *moment : {"23503", "40001", "40P01", "42883", "42P01", "42501", "53200", "55P03", "57014", "P0001",
							   "P7002", "XX000", "0A000"})
		EXPECT_EQ(fault_of(moment), Fault::moment) << moment;
	for (const char *sink : {"08006", "25006", "28P01", "28000", "3D000", "53100", "53300", "57P01", "57P03"})
		EXPECT_EQ(fault_of(sink), Fault::sink) << sink;
}

TEST(PostgresCodes, NamesOfWhatTheTableDoesNotHave)
{
	EXPECT_EQ(postgres::code_of("23505"), "SQLSTATE_23505");
	EXPECT_EQ(postgres::code_of("22ABC"), "SQLSTATE_22XXX");
	EXPECT_EQ(postgres::code_of("P8123"), "SQLSTATE_P8XXX");
	EXPECT_EQ(fault_of("P8123"), Fault::message);
	EXPECT_EQ(postgres::code_of("ABCDE"), "SQLSTATE_ABCDE");
	EXPECT_FALSE(Taxonomy(postgres::codes()).known("SQLSTATE_ABCDE"));
}

TEST(PostgresCodes, WhichErrorsDivideABatch)
{
	for (const char *one : {"22P02", "23505", "42883", "P0001", "54000", "53200", "ABCDE"})
		EXPECT_FALSE(postgres::concerns_the_batch(one)) << one;
	for (const char *all : {"40001", "40P01", "55P03", "57014", "57P01", "53300", "25006", "08006"})
		EXPECT_TRUE(postgres::concerns_the_batch(all)) << all;
}

} // namespace
