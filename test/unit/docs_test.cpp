// docs/internals.md and docs/states.dot show the table that the code uses. Skipped where
// the file or the markers are absent; a marker without its partner is an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "table.h"

namespace {

constexpr const char *file = "../../docs/internals.md";

using Lines = std::vector<std::string>;

Lines
read(std::istream &in)
{
	Lines result;

	for (std::string line; std::getline(in, line);)
		result.push_back(line);
	return result;
}

TEST(Docs, ShowTheTransitions)
{
	std::ifstream in(file);
	if (!in)
		GTEST_SKIP() << "no " << file;

	const Lines all = read(in);
	const auto begin = std::find(all.begin(), all.end(), "<!-- transitions -->");
	const auto end = std::find(all.begin(), all.end(), "<!-- /transitions -->");
	if (begin == all.end() && end == all.end())
		GTEST_SKIP() << "no transition markers in " << file;

	ASSERT_NE(begin, all.end()) << "the opening marker is missing in " << file;
	ASSERT_NE(end, all.end()) << "the closing marker is missing in " << file;
	ASSERT_LT(begin, end) << "the markers are in the wrong order in " << file;
	EXPECT_EQ(Lines(begin + 1, end), outbox::test::transition_table())
		<< "fill it from: make -s -C test/unit transitions";
}

TEST(Docs, ShowTheDiagram)
{
	std::ifstream in("../../docs/states.dot");
	if (!in)
		GTEST_SKIP() << "no docs/states.dot";

	EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), outbox::test::diagram())
		<< "make pictures writes it";
}

} // namespace
