// Counters over prometheus-cpp.
//
// Guarantees: the series of a source or sink are made together when it is first named, so that they start from 0 and
// a rate over them misses nothing. Counting looks up one or two names under a shared lock; it makes no strings. Values
// of event_type, and codes, beyond the first 200 of each become "other": a producer that puts an id into event_type
// cannot fill the monitoring system.
#include "seen/metrics.h"

#include "seen/exposition.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace relay {

namespace {

constexpr size_t most_values = 200;

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

const Buckets call_buckets{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};
const Buckets lag_buckets{.001, .0025, .005, .01, .025, .05, .1,  .25,  .5,    1,
						  2.5,  5,     10,   30,  60,   300, 900, 3600, 21600, 86400};

struct NameHash {
	using is_transparent = void;
	size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

template <class Value>
using ByName = std::unordered_map<std::string, Value, NameHash, std::equal_to<>>;

template <class Value>
Value *
find_in(ByName<Value> &map, std::string_view name)
{
	const auto it = map.find(name);
	return it == map.end() ? nullptr : &it->second;
}

template <class Value>
Value &
entry(ByName<Value> &map, std::string_view name)
{
	auto *found = find_in(map, name);
	return found ? *found : map[std::string(name)];
}

// The values of a label: the first ones as they are, then "other".
class Values {
public:
	// How the value is shown, if that is settled.
	[[nodiscard]] std::optional<std::string_view> known(std::string_view value) const
	{
		if (seen.contains(value))
		{
			return value;
		}
		return seen.size() < most_values ? std::nullopt : std::optional<std::string_view>("other");
	}

	std::string_view admit(std::string_view value)
	{
		const auto shown = known(value);
		return shown ? *shown : std::string_view(*seen.emplace(value).first);
	}

private:
	std::unordered_set<std::string, NameHash, std::equal_to<>> seen;
};

struct SourceSeries {
	Counter *claimed = nullptr, *released, *leases_lost, *unrecorded, *notify_wakeups, *poll_wakeups;
	Histogram *batch;
};

struct TypeSeries {
	Counter *published = nullptr;
	ByName<Counter *> failed; // by reason
};

struct SinkSeries {
	Counter *breaker_seconds = nullptr;
	Histogram *took, *lag;
	ByName<TypeSeries> types;
	ByName<Counter *> unknown_codes;
};

} // namespace

struct Metrics::Families {
	template <class Metric>
	using Family = prometheus::Family<Metric>;

	prometheus::Registry registry;

	Family<Counter> &claimed = counter("outbox_claimed_events_total", "Messages that were claimed.");
	Family<Counter> &published = counter("outbox_published_events_total", "Messages that the sink accepted.");
	Family<Counter> &failed = counter("outbox_failed_events_total", "Deliveries that were not accepted, by code.");
	Family<Counter> &dead = counter("outbox_dead_letter_events_total", "Messages that became dead letters.");
	Family<Counter> &unknown = counter("outbox_sink_unknown_codes_total", "Codes that the sink's table does not have.");
	Family<Counter> &breaker =
		counter("outbox_sink_breaker_open_seconds_total", "Time during which breakers of the sink were open.");
	Family<Counter> &released = counter("outbox_released_events_total", "Messages that were given back untried.");
	Family<Counter> &lost = counter("outbox_leases_lost_total", "Leases that ended before their outcome was recorded.");
	Family<Counter> &unrecorded = counter("outbox_outcomes_unrecorded_total",
										  "Outcomes that could not be recorded; these messages are delivered again.");
	Family<Counter> &notify = counter("outbox_notify_wakeups_total", "Claims after a notification.");
	Family<Counter> &poll = counter("outbox_poll_wakeups_total", "Claims because the poll interval had passed.");
	Family<Counter> &spans = counter("outbox_spans_dropped_total", "Spans that did not reach the collector.");
	Family<Gauge> &in_flight = gauge("outbox_in_flight", "Messages that are leased and have no recorded outcome yet.");
	Family<Gauge> &sink_up = gauge("outbox_sink_up", "1 unless the breaker of the sink is open.");
	Family<Gauge> &source_up = gauge("outbox_source_up", "1 while the source's database is connected.");
	Family<Gauge> &reload =
		gauge("outbox_last_reload_successful", "0 if the configuration was wrong when it was read again.");
	Family<Histogram> &took = histogram("outbox_publish_duration_seconds", "From the hand-over until it was accepted.");
	Family<Histogram> &batch = histogram("outbox_batch_duration_seconds", "Time to record a batch of outcomes.");
	Family<Histogram> &lag = histogram("outbox_delivery_lag_seconds", "From the commit until it was accepted.");
	Counter &dropped_spans = spans.Add({});
	Gauge &last_reload = reload.Add({}, 1);

	std::shared_mutex mutex; // of what follows
	Values event_types, codes;
	ByName<SourceSeries> sources;
	ByName<SinkSeries> sinks;
	ByName<Counter *> dead_letters;
	ByName<Gauge *> in_flights, sinks_up, sources_up;
	ByName<std::string> databases; // by source

	// What find() finds under a shared lock, else what make() makes under an exclusive one.
	template <class Find, class Make>
	auto &get(Find find, Make make)
	{
		{
			const std::shared_lock lock(mutex);
			if (auto *found = find())
			{
				return *found;
			}
		}
		const std::unique_lock lock(mutex);
		return make();
	}

	ByName<std::string> said_by_databases()
	{
		const std::shared_lock lock(mutex);
		return databases;
	}

	SourceSeries &source(std::string_view name);
	SinkSeries &made_sink(std::string_view name);
	TypeSeries *found_type(SinkSeries *sink, std::string_view event_type);
	TypeSeries &made_type(std::string_view sink, std::string_view event_type);
	void set(Family<Gauge> &family, ByName<Gauge *> &gauges, const char *label, std::string_view name, double value);
	void drop(Family<Gauge> &family, ByName<Gauge *> &gauges, std::string_view name);

private:
	Family<Counter> &counter(const char *name, const char *help)
	{
		return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
	}
	Family<Gauge> &gauge(const char *name, const char *help)
	{
		return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
	}
	Family<Histogram> &histogram(const char *name, const char *help)
	{
		return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
	}
};

SourceSeries &
Metrics::Families::source(std::string_view name)
{
	return get([&] { return find_in(sources, name); },
			   [&]() -> SourceSeries & {
				   auto &it = entry(sources, name);
				   if (!it.claimed)
				   {
					   const prometheus::Labels labels{{"source", std::string(name)}};
					   it = {&claimed.Add(labels),
							 &released.Add(labels),
							 &lost.Add(labels),
							 &unrecorded.Add(labels),
							 &notify.Add(labels),
							 &poll.Add(labels),
							 &batch.Add(labels, call_buckets)};
				   }
				   return it;
			   });
}

SinkSeries &
Metrics::Families::made_sink(std::string_view name)
{
	auto &it = entry(sinks, name);
	if (!it.breaker_seconds)
	{
		const prometheus::Labels labels{{"sink", std::string(name)}};
		it.breaker_seconds = &breaker.Add(labels);
		it.took = &took.Add(labels, call_buckets);
		it.lag = &lag.Add(labels, lag_buckets);
	}
	return it;
}

TypeSeries *
Metrics::Families::found_type(SinkSeries *sink, std::string_view event_type)
{
	auto *found = sink ? find_in(sink->types, event_type) : nullptr;
	if (sink && !found)
	{
		const auto shown = event_types.known(event_type);
		found = shown ? find_in(sink->types, *shown) : nullptr;
	}
	return found;
}

TypeSeries &
Metrics::Families::made_type(std::string_view sink, std::string_view event_type)
{
	const auto shown = event_types.admit(event_type);
	auto &it = entry(made_sink(sink).types, shown);
	if (!it.published)
	{
		it.published = &published.Add({{"event_type", std::string(shown)}, {"sink", std::string(sink)}});
	}
	return it;
}

void
Metrics::Families::set(Family<Gauge> &family, ByName<Gauge *> &gauges, const char *label, std::string_view name,
					   double value)
{
	// Under the lock, since drop() may take the gauge away.
	const std::unique_lock lock(mutex);
	auto &it = entry(gauges, name);
	if (!it)
	{
		it = &family.Add({{label, std::string(name)}});
	}
	it->Set(value);
}

void
Metrics::Families::drop(Family<Gauge> &family, ByName<Gauge *> &gauges, std::string_view name)
{
	const std::unique_lock lock(mutex);
	if (const auto it = gauges.find(name); it != gauges.end())
	{
		family.Remove(it->second);
		gauges.erase(it);
	}
}

Metrics::Metrics() : families(std::make_unique<Families>()) {}

Metrics::~Metrics() = default;

void
Metrics::claimed(std::string_view source, size_t messages)
{
	families->source(source).claimed->Increment(static_cast<double>(messages));
}

void
Metrics::published(std::string_view sink, std::string_view event_type, Duration took, Duration lag)
{
	auto &all = *families;
	SinkSeries *series = nullptr;
	auto &type = all.get(
		[&] {
			series = find_in(all.sinks, sink);
			return all.found_type(series, event_type);
		},
		[&]() -> TypeSeries & {
			series = &all.made_sink(sink);
			return all.made_type(sink, event_type);
		});

	type.published->Increment();
	series->took->Observe(took.count());
	series->lag->Observe(std::max(lag.count(), 0.0)); // the clocks may differ, and a sum must not fall
}

void
Metrics::failed(std::string_view sink, std::string_view event_type, std::string_view reason)
{
	auto &all = *families;
	auto *series = all.get(
		[&]() -> Counter ** {
			auto *type = all.found_type(find_in(all.sinks, sink), event_type);
			const auto shown = all.codes.known(reason);
			return type && shown ? find_in(type->failed, *shown) : nullptr;
		},
		[&]() -> Counter *& {
			const auto type = all.event_types.admit(event_type);
			const auto shown = all.codes.admit(reason);
			auto &it = entry(all.made_type(sink, type).failed, shown);
			if (!it)
			{
				it = &all.failed.Add(
					{{"event_type", std::string(type)}, {"reason", std::string(shown)}, {"sink", std::string(sink)}});
			}
			return it;
		});

	series->Increment();
}

void
Metrics::dead_letter(std::string_view event_type)
{
	auto &all = *families;
	const std::unique_lock lock(all.mutex);
	const auto shown = all.event_types.admit(event_type);
	auto &it = entry(all.dead_letters, shown);
	if (!it)
	{
		it = &all.dead.Add({{"event_type", std::string(shown)}});
	}
	it->Increment();
}

void
Metrics::unknown_code(std::string_view sink, std::string_view code)
{
	auto &all = *families;
	const std::unique_lock lock(all.mutex);
	const auto shown = all.codes.admit(code);
	auto &it = entry(all.made_sink(sink).unknown_codes, shown);
	if (!it)
	{
		it = &all.unknown.Add({{"code", std::string(shown)}, {"sink", std::string(sink)}});
	}
	it->Increment();
}

void
Metrics::batch(std::string_view source, Duration took)
{
	families->source(source).batch->Observe(took.count());
}

void
Metrics::in_flight(std::string_view source, size_t messages)
{
	families->set(families->in_flight, families->in_flights, "source", source, static_cast<double>(messages));
}

void
Metrics::sink_up(std::string_view sink, bool up)
{
	{
		const std::unique_lock lock(families->mutex);
		families->made_sink(sink);
	}
	families->set(families->sink_up, families->sinks_up, "sink", sink, up ? 1 : 0);
}

void
Metrics::breaker_open(std::string_view sink, Duration during)
{
	const std::unique_lock lock(families->mutex);
	families->made_sink(sink).breaker_seconds->Increment(during.count());
}

void
Metrics::released(std::string_view source, size_t messages)
{
	families->source(source).released->Increment(static_cast<double>(messages));
}

void
Metrics::leases_lost(std::string_view source, size_t messages)
{
	families->source(source).leases_lost->Increment(static_cast<double>(messages));
}

void
Metrics::outcomes_unrecorded(std::string_view source, size_t messages)
{
	families->source(source).unrecorded->Increment(static_cast<double>(messages));
}

void
Metrics::notify_wakeup(std::string_view source)
{
	families->source(source).notify_wakeups->Increment();
}

void
Metrics::poll_wakeup(std::string_view source)
{
	families->source(source).poll_wakeups->Increment();
}

void
Metrics::source_up(std::string_view source, bool up)
{
	families->source(source);
	families->set(families->source_up, families->sources_up, "source", source, up ? 1 : 0);
}

void
Metrics::reloaded(bool well)
{
	families->last_reload.Set(well ? 1 : 0);
}

void
Metrics::spans_dropped(size_t spans)
{
	families->dropped_spans.Increment(static_cast<double>(spans));
}

void
Metrics::database(std::string_view source, std::string text)
{
	const std::unique_lock lock(families->mutex);
	entry(families->databases, source) = std::move(text);
}

void
Metrics::forget_source(std::string_view source)
{
	database(source, {});
	families->drop(families->source_up, families->sources_up, source);
	families->drop(families->in_flight, families->in_flights, source);
}

void
Metrics::forget_sink(std::string_view sink)
{
	families->drop(families->sink_up, families->sinks_up, sink);
}

std::string
Metrics::exposition() const
{
	Exposition all;

	all.add(prometheus::TextSerializer().Serialize(families->registry.Collect()));
	for (const auto &[source, text] : families->said_by_databases())
		all.add(text, label_of("database", source));
	return all.text();
}

} // namespace relay
