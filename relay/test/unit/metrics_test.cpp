// What the counters say, and that event types cannot fill a monitoring system.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "seen/metrics.h"

namespace {

using namespace relay;
using Duration = Metrics::Duration;

// Series with labels, and their values.
std::map<std::string, double>
samples(const Metrics &metrics)
{
	std::map<std::string, double> result;
	std::istringstream lines(metrics.exposition());

	for (std::string line; std::getline(lines, line);)
	{
		if (!line.starts_with('#'))
		{
			const auto space = line.rfind(' ');
			EXPECT_TRUE(result.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second) << line;
		}
	}
	return result;
}

size_t
series_of(const Metrics &metrics, std::string_view name)
{
	size_t count = 0;

	for (const auto &[series, value] : samples(metrics))
	{
		count += series.starts_with(std::string(name) + "{") ? 1 : 0;
	}
	return count;
}

TEST(Metrics, NamesAndLabels)
{
	Metrics metrics;

	metrics.claimed("bank", 7);
	metrics.published("kafka", "order.placed", Duration(.003), Duration(2));
	metrics.failed("http", "order.placed", "HTTP_503");
	metrics.dead_letter("order.placed");
	metrics.unknown_code("http", "HTTP_599");
	metrics.batch("bank", Duration(.02));
	metrics.in_flight("bank", 40);
	metrics.sink_up("kafka", true);
	metrics.source_up("bank", false);
	metrics.breaker_open("http", Duration(1.5));
	metrics.breaker_open("http", Duration(1));
	metrics.released("bank", 3);
	metrics.leases_lost("bank", 2);
	metrics.outcomes_unrecorded("bank", 4);
	metrics.notify_wakeup("bank");
	metrics.poll_wakeup("bank");
	metrics.poll_wakeup("bank");
	metrics.spans_dropped(9);
	metrics.reloaded(false);

	const auto found = samples(metrics);
	const std::map<std::string, double> expected{
		{R"(outbox_claimed_events_total{source="bank"})", 7},
		{R"(outbox_published_events_total{event_type="order.placed",sink="kafka"})", 1},
		{R"(outbox_failed_events_total{event_type="order.placed",reason="HTTP_503",sink="http"})", 1},
		{R"(outbox_dead_letter_events_total{event_type="order.placed"})", 1},
		{R"(outbox_last_reload_successful)", 0},
		{R"(outbox_sink_unknown_codes_total{code="HTTP_599",sink="http"})", 1},
		{R"(outbox_publish_duration_seconds_bucket{sink="kafka",le="0.0025"})", 0},
		{R"(outbox_publish_duration_seconds_bucket{sink="kafka",le="0.005"})", 1},
		{R"(outbox_publish_duration_seconds_count{sink="kafka"})", 1},
		{R"(outbox_delivery_lag_seconds_sum{sink="kafka"})", 2},
		{R"(outbox_batch_duration_seconds_count{source="bank"})", 1},
		{R"(outbox_in_flight{source="bank"})", 40},
		{R"(outbox_sink_up{sink="kafka"})", 1},
		{R"(outbox_source_up{source="bank"})", 0},
		{R"(outbox_sink_breaker_open_seconds_total{sink="http"})", 2.5},
		{R"(outbox_released_events_total{source="bank"})", 3},
		{R"(outbox_leases_lost_total{source="bank"})", 2},
		{R"(outbox_outcomes_unrecorded_total{source="bank"})", 4},
		{R"(outbox_notify_wakeups_total{source="bank"})", 1},
		{R"(outbox_poll_wakeups_total{source="bank"})", 2},
		{"outbox_spans_dropped_total", 9},
	};
	for (const auto &[series, value] : expected)
	{
		ASSERT_TRUE(found.contains(series)) << series << "\n" << metrics.exposition();
		EXPECT_EQ(found.at(series), value) << series;
	}
}

// The clock of the relay may be behind that of the database, and a sum that falls is a counter that began again.
TEST(Metrics, NoLagIsNegative)
{
	Metrics metrics;

	metrics.published("kafka", "order.placed", Duration(.003), Duration(-5));
	EXPECT_EQ(samples(metrics).at(R"(outbox_delivery_lag_seconds_sum{sink="kafka"})"), 0);
}

TEST(Metrics, CountersBeginAtZero)
{
	Metrics metrics;

	metrics.source_up("bank", true);
	metrics.sink_up("kafka", true);
	const auto found = samples(metrics);
	for (const auto *name : {"claimed_events", "leases_lost", "outcomes_unrecorded", "notify_wakeups", "poll_wakeups"})
	{
		EXPECT_TRUE(found.contains("outbox_" + std::string(name) + "_total{source=\"bank\"}")) << name;
	}
	EXPECT_TRUE(found.contains(R"(outbox_sink_breaker_open_seconds_total{sink="kafka"})"));
	EXPECT_TRUE(found.contains("outbox_spans_dropped_total"));
}

TEST(Metrics, EventTypesAreCapped)
{
	Metrics metrics;

	for (int round = 0; round < 2; round++)
	{
		for (int i = 0; i < 1000; i++)
		{
			const auto type = "type-" + std::to_string(i);
			metrics.published("one", type, Duration(0), Duration(0));
			metrics.failed("two", type, "TIMEOUT");
			metrics.dead_letter(type);
		}
	}
	const auto found = samples(metrics);
	EXPECT_EQ(series_of(metrics, "outbox_published_events_total"), 201 + 201); // of both sinks
	EXPECT_EQ(series_of(metrics, "outbox_failed_events_total"), 201);
	EXPECT_EQ(series_of(metrics, "outbox_dead_letter_events_total"), 201);
	EXPECT_EQ(found.at(R"(outbox_published_events_total{event_type="type-199",sink="one"})"), 2);
	EXPECT_EQ(found.at(R"(outbox_published_events_total{event_type="other",sink="one"})"), 1600);
	EXPECT_EQ(found.at(R"(outbox_failed_events_total{event_type="other",reason="TIMEOUT",sink="two"})"), 1600);
	EXPECT_EQ(found.at(R"(outbox_dead_letter_events_total{event_type="other"})"), 1600);
}

TEST(Metrics, CodesAreCapped)
{
	Metrics metrics;

	for (int i = 0; i < 1000; i++)
	{
		metrics.unknown_code("http", "CODE_" + std::to_string(i));
		metrics.failed("http", "a", "CODE_" + std::to_string(i));
	}
	EXPECT_EQ(series_of(metrics, "outbox_sink_unknown_codes_total"), 201);
	EXPECT_EQ(series_of(metrics, "outbox_failed_events_total"), 201);
}

TEST(Metrics, LabelsAreEscaped)
{
	Metrics metrics;

	metrics.dead_letter("a\"b\\c\nd");
	EXPECT_EQ(samples(metrics).count(R"(outbox_dead_letter_events_total{event_type="a\"b\\c\nd"})"), 1);
}

TEST(Metrics, ForgottenGaugesEnd)
{
	Metrics metrics;

	for (int round = 0; round < 2; round++)
	{
		metrics.source_up("bank", true);
		metrics.in_flight("bank", 3);
		metrics.sink_up("kafka", false);
		EXPECT_EQ(series_of(metrics, "outbox_source_up"), 1);
		EXPECT_EQ(series_of(metrics, "outbox_in_flight"), 1);
		EXPECT_EQ(series_of(metrics, "outbox_sink_up"), 1);
		metrics.forget_source("bank");
		metrics.forget_sink("kafka");
		metrics.forget_sink("never there");
		EXPECT_EQ(series_of(metrics, "outbox_source_up") + series_of(metrics, "outbox_in_flight"), 0);
		EXPECT_EQ(series_of(metrics, "outbox_sink_up"), 0);
	}
	EXPECT_EQ(series_of(metrics, "outbox_claimed_events_total"), 1);
}

TEST(Metrics, AnyThreadCounts)
{
	Metrics metrics;
	{
		std::vector<std::jthread> threads;
		for (int i = 0; i < 4; i++)
		{
			threads.emplace_back([&metrics] {
				for (int n = 0; n < 3000; n++)
				{
					const auto type = "type-" + std::to_string(n % 300);
					metrics.published("one", type, Duration(0), Duration(0));
					metrics.failed("one", type, "TIMEOUT");
					metrics.in_flight("bank", 1);
					metrics.forget_source("bank");
				}
			});
		}
	}
	double published = 0, failed = 0;
	for (const auto &[series, value] : samples(metrics))
	{
		published += series.starts_with("outbox_published") ? value : 0;
		failed += series.starts_with("outbox_failed") ? value : 0;
	}
	EXPECT_EQ(published, 12000);
	EXPECT_EQ(failed, 12000);
}

} // namespace
