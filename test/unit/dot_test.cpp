// The diagram: it fits its buffer, it is DOT, and it shows the whole table.
#include <gtest/gtest.h>

#include <regex.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "state.h"

namespace {

using namespace outbox::core;

std::string
whole()
{
	std::vector<char> buffer(write_dot(nullptr, 0) + 1);

	write_dot(buffer.data(), buffer.size());
	return buffer.data();
}

std::vector<std::string>
lines()
{
	std::istringstream text(whole());
	std::vector<std::string> result;

	for (std::string line; std::getline(text, line);)
		result.push_back(line);
	return result;
}

TEST(Dot, SaysTheLengthItNeeds)
{
	const size_t length = write_dot(nullptr, 0);

	EXPECT_GT(length, 500u);
	EXPECT_EQ(whole().size(), length);
	EXPECT_EQ(whole().back(), '\n');
}

TEST(Dot, LargerBufferChangesNothing)
{
	std::vector<char> buffer(100'000, '#');
	const size_t length = write_dot(buffer.data(), buffer.size());

	EXPECT_EQ(std::string(buffer.data()), whole());
	EXPECT_EQ(buffer[length], '\0');
	EXPECT_EQ(buffer[length + 1], '#');
}

TEST(Dot, IsCutAtEverySizeAsSnprintfCuts)
{
	const std::string text = whole();

	for (size_t size = 1; size <= text.size() + 2; size++)
	{
		std::vector<char> buffer(size + 1, '#');
		const size_t kept = std::min(size - 1, text.size());

		ASSERT_EQ(write_dot(buffer.data(), size), text.size()) << size;
		ASSERT_EQ(std::string(buffer.data()), text.substr(0, kept)) << size;
		ASSERT_EQ(buffer[size], '#') << size;
	}
}

TEST(Dot, SizeNoneWritesNothing)
{
	char untouched = '#';

	EXPECT_EQ(write_dot(&untouched, 0), whole().size());
	EXPECT_EQ(untouched, '#');
}

// The statements used here, a subset of the language that can be checked by line.
// Not std::regex: with the sanitizers on, g++ 12 warns about its insides.
class Statement {
public:
	Statement()
	{
		const char *pattern = "^\t(rankdir=LR;"
							  "|node \\[[a-z]+=[a-z]+(, [a-z]+=[a-z]+)*\\];"
							  "|[a-z]+( \\[[a-z]+=[a-z0-9]+\\])?;"
							  "|[a-z]+ -> [a-z]+ \\[label=\"([A-Za-z_ ]|\\\\n)+\"(, style=dashed)?\\];)$";

		EXPECT_EQ(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
	}
	~Statement() { regfree(&compiled); }
	Statement(const Statement &) = delete;
	Statement &operator=(const Statement &) = delete;

	bool matches(const std::string &line) const { return regexec(&compiled, line.c_str(), 0, nullptr, 0) == 0; }

private:
	regex_t compiled;
};

TEST(Dot, IsDot)
{
	const std::vector<std::string> all = lines();
	const Statement statement;

	ASSERT_GT(all.size(), 2u);
	EXPECT_EQ(all.front(), "digraph outbox {");
	EXPECT_EQ(all.back(), "}");
	for (size_t i = 1; i + 1 < all.size(); i++)
		EXPECT_TRUE(statement.matches(all[i])) << all[i];
}

std::string
edge(const Transition &row)
{
	std::string text = std::string("\t") + name(row.from) + " -> " + name(row.to) + " [label=\"" + name(row.event);

	if (row.at_ceiling)
		text += " at the ceiling";
	if (row.record != Record::nothing)
		text += std::string("\\nrecords ") + name(row.record);
	return text + (row.at_ceiling ? "\", style=dashed];" : "\"];");
}

TEST(Dot, ShowsEveryTransitionOnceAndNoOther)
{
	std::map<std::string, int> shown, listed;

	for (const std::string &line : lines())
		if (line.find("->") != std::string::npos)
			shown[line]++;
	for (size_t i = 0; i < transition_count; i++)
		listed[edge(transitions[i])]++;
	EXPECT_EQ(shown, listed);
}

TEST(Dot, MarksWhereItBeginsAndEnds)
{
	const std::string text = whole();

	for (const char *node : {"\tabsent [shape=plaintext];\n", "\tpending;\n", "\tleased;\n", "\texpired;\n",
							 "\tdispatched [peripheries=2];\n", "\tfailed [peripheries=2];\n"})
		EXPECT_NE(text.find(node), std::string::npos) << node;
}

} // namespace
