// What libpq and the server say of a connection that cannot be made.
#include "db/trouble.h"

#include <gtest/gtest.h>

using namespace relay;

namespace {

const std::string at = "connection to server at \"db1\" (10.0.0.1), port 5432 failed: ";

} // namespace

TEST(Trouble, HasTheCodeOfTheServer)
{
	const Trouble trouble = connection_trouble(
		at + "FATAL:  28P01: password authentication failed for user \"relay\"\nLOCATION:  auth_failed, auth.c:326\n");

	EXPECT_EQ(trouble.code, "28P01");
	EXPECT_TRUE(trouble.refused());
	EXPECT_TRUE(trouble.text.starts_with(at + "FATAL:  password authentication failed for user \"relay\"; the role"))
		<< trouble.text;
	EXPECT_TRUE(trouble.said().starts_with("it refuses the relay (28P01): " + at)) << trouble.said();
}

TEST(Trouble, InAnyLanguage)
{
	EXPECT_EQ(connection_trouble(at + "FATAL:  3D000: Datenbank \"nirgends\" existiert nicht").code, "3D000");
	EXPECT_EQ(connection_trouble(at + "\xE8\x87\xB4\xE5\x91\xBD\xE9\x94\x99\xE8\xAF\xAF:  3D000: \xE5\xBA\x93").code,
			  "3D000");
}

TEST(Trouble, OfSeveralHostsTheLastOneCounts)
{
	EXPECT_EQ(connection_trouble(at + "FATAL:  57P03: the database system is starting up\n" + at +
								 "FATAL:  53300: sorry, too many clients already")
				  .code,
			  "53300");
}

TEST(Trouble, IsAwayWithoutAServerThatRefuses)
{
	for (const std::string text : {"Connection refused\n\tIs the server running?", "FATAL:  57P03: starting up",
								   "FATAL:  57P01: terminating", "FATAL:  08P01: protocol", "session is read-only", ""})
		EXPECT_FALSE(connection_trouble(at + text).refused()) << text;
	EXPECT_EQ(connection_trouble("").code, "");
	EXPECT_TRUE(read_only_trouble("session is read-only").refused());
	EXPECT_TRUE(password_trouble("fe_sendauth").refused());
}

// A name that the server repeats is not its code.
TEST(Trouble, WordsAreNoCode)
{
	for (const std::string text : {"FATAL:  role \"28P01: x\" does not exist", "could not translate \"a:  b\"",
								   "FATAL:  28p01: lower", "FATAL:  28P0", "FATAL:  28P01", ":  "})
		EXPECT_EQ(connection_trouble(at + text).code, "") << text;
	EXPECT_EQ(connection_trouble("FATAL:  28000: role \"ERROR:  3D000: x\" does not exist").code, "28000");
}

TEST(Trouble, SaysWhatToDo)
{
	for (const char *code : {"28P01", "28000", "3D000", "53300", "42501", "55000", "57P03", "25006"})
		EXPECT_NE(connection_remedy(code), "") << code;
	for (const char *code : {"42501", "3F000", "42883", "25006"})
		EXPECT_NE(statement_remedy(code), "") << code;
	EXPECT_EQ(statement_remedy("53100"), "");
	EXPECT_EQ(with_remedy("full", ""), "full");
}
