// Texts of several origins as one scrape.
#include <gtest/gtest.h>

#include "seen/exposition.h"
#include "seen/metrics.h"

namespace {

using namespace relay;

TEST(Exposition, PutsTheSamplesOfAMetricTogether)
{
	Exposition all;

	all.add("# HELP b of the first\n# TYPE b counter\nb{source=\"x\"} 1\n# HELP a only here\n# TYPE a gauge\na 2\n");
	all.add("# HELP b of the second\n# TYPE b counter\nb{queue=\"q\"} 3\n# HELP c only there\n# TYPE c gauge\nc 4\n",
			"database=\"d\"");
	EXPECT_EQ(all.text(),
			  "# HELP a only here\n# TYPE a gauge\na 2\n"
			  "# HELP b of the first\n# TYPE b counter\nb{source=\"x\"} 1\nb{database=\"d\",queue=\"q\"} 3\n"
			  "# HELP c only there\n# TYPE c gauge\nc{database=\"d\"} 4\n");
}

TEST(Exposition, KeepsHistograms)
{
	Exposition all;
	const std::string text = "# HELP h how long\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 0.5\nh_count 1\n";

	all.add(text);
	EXPECT_EQ(all.text(), text);
}

TEST(Exposition, EscapesLabels)
{
	EXPECT_EQ(label_of("database", "a\"b\\c\nd"), R"(database="a\"b\\c\nd")");
}

TEST(Exposition, EndsWithTheDatabase)
{
	Metrics metrics;

	metrics.database("main", "# HELP outbox_x said\n# TYPE outbox_x gauge\noutbox_x{queue=\"q\"} 7\n");
	EXPECT_NE(metrics.exposition().find("\noutbox_x{database=\"main\",queue=\"q\"} 7\n"), std::string::npos);
	metrics.database("main", "");
	EXPECT_EQ(metrics.exposition().find("outbox_x"), std::string::npos);
}

} // namespace
