// See config.h.
#include "config/config.h"

#include "config/routes.h"
#include "db/conninfo.h"

#include <algorithm>
#include <climits>
#include <set>

#include <unistd.h>

namespace relay {

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

milliseconds
duration(Section &section, std::string_view key, milliseconds otherwise, milliseconds least, milliseconds most)
{
	const milliseconds value = section.duration(key, otherwise);

	if (value < least || value > most)
		section.refuse(key, "is " + std::to_string(value.count()) + " ms, but must be from " +
								std::to_string(least.count()) + " to " + std::to_string(most.count()) + " ms");
	return value;
}

size_t
count(Section &section, std::string_view key, size_t otherwise, int64_t least, int64_t most)
{
	return static_cast<size_t>(section.number(key, static_cast<int64_t>(otherwise), least, most));
}

std::string
default_worker_id()
{
	char host[256] = "";

	if (gethostname(host, sizeof host - 1) != 0)
		host[0] = '\0';
	return "outbox-relay " + std::string(host) + ":" + std::to_string(getpid());
}

// HOST:PORT or [HOST]:PORT; empty: none
void
check_listen(const Section &section, const std::string &listen)
{
	const size_t colon = listen.rfind(':');
	const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);

	if (listen.empty())
		return;
	if (colon == 0 || port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos ||
		std::stoi(port) > 65535)
		section.refuse("listen", "is \"" + listen + "\", but must be HOST:PORT, or empty for none");
}

void
read_relay(Section section, Config &config)
{
	config.listen = section.text("listen", config.listen);
	check_listen(section, config.listen);
	config.worker_id = section.text("worker_id", default_worker_id());
	if (config.worker_id.empty() || config.worker_id.size() > 512)
		section.refuse("worker_id", "must have 1 to 512 bytes");
	config.grace = duration(section, "grace", config.grace, milliseconds(0), hours(1));
	section.done();
}

LogSettings
read_log(Section section)
{
	LogSettings log;
	const std::vector<std::string> levels = {"debug", "info", "warning", "error"};

	log.json = section.choice("format", "text", {"text", "json"}) == "json";
	const std::string level = section.choice("level", "info", levels);
	log.level = static_cast<Level>(std::find(levels.begin(), levels.end(), level) - levels.begin());
	section.done();
	return log;
}

TracingSettings
read_tracing(Section section)
{
	TracingSettings tracing;

	tracing.endpoint = section.text("endpoint", "");
	if (!tracing.endpoint.empty() && !tracing.endpoint.starts_with("http://") &&
		!tracing.endpoint.starts_with("https://"))
		section.refuse("endpoint", "must begin with http:// or https://");
	tracing.headers = section.free("headers");
	tracing.service = section.text("service", tracing.service);
	section.done();
	return tracing;
}

// Registers the passwords in it, too. libpq's own words on what is wrong repeat parts of it, and are not shown.
Secret
read_dsn(Section &section)
{
	const std::optional<Secret> dsn = section.secret("dsn");

	if (!dsn)
		section.refuse("dsn", "is missing: it says where the database is");
	if (problem_of(*dsn))
		section.refuse("dsn", "is not a connection string or URI of libpq");
	return *dsn;
}

void
read_queues(Section &section, SourceSettings &source)
{
	constexpr size_t longest = 63;

	source.queues = section.texts("queues", source.queues);
	source.weights = section.numbers("weights");
	if (source.queues.empty())
		section.refuse("queues", "is empty");
	for (const std::string &queue : source.queues)
	{
		if (queue.empty() || queue.size() > longest)
			section.refuse("queues", "has \"" + queue + "\", but names have 1 to 63 bytes");
		if (std::count(source.queues.begin(), source.queues.end(), queue) > 1)
			section.refuse("queues", "has \"" + queue + "\" twice");
		if (queue == "*" && source.queues.size() > 1)
			section.refuse("queues", "must have nothing beside \"*\"");
	}
	if (!source.weights.empty() && source.weights.size() != source.queues.size())
		section.refuse("weights", "must have one number for each queue");
	for (const int64_t weight : source.weights)
		if (weight < 1 || weight > INT_MAX)
			section.refuse("weights", "has " + std::to_string(weight) + ", but must be at least 1");
}

SourceSettings
read_source(Section &section, size_t sources)
{
	SourceSettings source;

	source.name = sources == 1 ? section.text("name", "main") : section.text("name");
	if (source.name.empty())
		section.refuse("name", "is empty");
	source.dsn = read_dsn(section);
	read_queues(section, source);
	source.batch = count(section, "batch", source.batch, 1, 100'000);
	source.max_in_flight = count(section, "max_in_flight", source.max_in_flight, 1, 10'000'000);
	source.poll_interval = duration(section, "poll_interval", source.poll_interval, milliseconds(10), hours(1));
	if (section.has("lease"))
		source.lease = duration(section, "lease", {}, milliseconds(1000), hours(24));
	source.database_metrics = section.flag("database_metrics", source.database_metrics);
	section.done();
	return source;
}

std::vector<SourceSettings>
read_sources(Section &root)
{
	std::vector<Section> sections = root.sections("source");
	std::vector<SourceSettings> result;
	std::set<std::string> names;

	if (sections.empty())
		root.refuse("source", "is missing: [[source]] names the database");
	for (Section &section : sections)
	{
		result.push_back(read_source(section, sections.size()));
		if (!names.insert(result.back().name).second)
			section.refuse("name", "is \"" + result.back().name + "\", as of another [[source]]");
	}
	return result;
}

const SinkKind &
read_kind(Section &section, std::span<const SinkKind> kinds, std::span<const std::string_view> missing)
{
	const std::string type = section.text("type");
	std::vector<std::string> names;

	if (std::find(missing.begin(), missing.end(), type) != missing.end())
		section.refuse("type", "is \"" + type + "\", which this program was built without: its library was missing");
	for (const SinkKind &kind : kinds)
		names.emplace_back(kind.type);
	section.choice("type", type, names);
	return *kind_of(kinds, type);
}

SinkConfig
read_sink(Section section, const std::string &name, const SinkKind &kind)
{
	SinkConfig sink;
	SinkSettings &settings = sink.settings;

	settings = kind.defaults;
	settings.name = name;
	settings.type = kind.type;
	settings.max_in_flight = count(section, "max_in_flight", settings.max_in_flight, 1, 1'000'000);
	settings.max_per_endpoint = count(section, "max_per_endpoint", settings.max_per_endpoint, 0, 1'000'000);
	settings.timeout = duration(section, "timeout", settings.timeout, milliseconds(1), hours(1));
	sink.binding = kind.binding;
	sink.make = kind.read(section, settings);
	section.done();
	sink.fingerprint = section.fingerprint();
	return sink;
}

std::map<std::string, SinkConfig>
read_sinks(Section &root, const toml::table &document, std::span<const SinkKind> kinds,
		   std::span<const std::string_view> missing)
{
	constexpr std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
	Section all = root.section("sink");
	const toml::table *table = document["sink"].as_table();
	std::map<std::string, SinkConfig> result;

	if (table == nullptr || table->empty())
		root.refuse("sink", "is missing: [sink.NAME] says where messages go");
	for (const auto &[key, node] : *table)
	{
		const std::string name(key.str());
		if (name.empty() || name.find_first_not_of(allowed) != std::string::npos)
			all.refuse(name, "is no name of a sink: letters, digits, _ and - only");
		Section section = all.section(name);
		const SinkKind &kind = read_kind(section, kinds, missing);
		result.emplace(name, read_sink(section, name, kind));
	}
	all.done();
	return result;
}

// Once the overrides are known.
void
finish_sinks(std::map<std::string, SinkConfig> &sinks, std::span<const SinkKind> kinds)
{
	for (auto &[name, sink] : sinks)
	{
		for (const auto &[code, fault] : sink.overrides)
			sink.fingerprint += " " + code + "=" + std::to_string(static_cast<int>(fault));
		sink.taxonomy = [codes = kind_of(kinds, sink.settings.type)->codes, overrides = sink.overrides] {
			Taxonomy result(codes());
			for (const auto &[code, fault] : overrides)
				result.change(code, fault);
			return result;
		};
	}
}

Config
read_document(const toml::table &document, std::span<const SinkKind> kinds, std::span<const std::string_view> missing)
{
	Config config;
	Section root(document, "");

	read_relay(root.section("relay"), config);
	config.log = read_log(root.section("log"));
	config.tracing = read_tracing(root.section("tracing"));
	config.sources = read_sources(root);
	config.sinks = read_sinks(root, document, kinds, missing);
	config.routes = read_routes(root, config.sinks, kinds);
	read_overrides(root, config.sinks, kinds);
	finish_sinks(config.sinks, kinds);
	root.done();
	return config;
}

// What toml++ says, without a number that it repeats: it may be a password without quotes.
std::string
problem_of(const toml::parse_error &error)
{
	std::string text(error.description());
	const size_t end = text.find("' is not representable"), begin = text.rfind('\'', end == 0 ? 0 : end - 1);

	if (end != std::string::npos && begin != std::string::npos)
		text.replace(begin, end + 1 - begin, "a number");
	return "line " + std::to_string(error.source().begin.line) + ", column " +
		   std::to_string(error.source().begin.column) + ": " + text;
}

} // namespace

Config
parse_config(std::string_view text, std::span<const SinkKind> kinds, std::span<const std::string_view> missing)
{
	try
	{
		return read_document(toml::parse(text), kinds, missing);
	}
	catch (const toml::parse_error &error)
	{
		throw ConfigError(redact(problem_of(error)));
	}
	catch (const TomlAssertion &)
	{
		throw ConfigError("this is not TOML, in a way that its parser cannot describe");
	}
}

Config
read_config(const std::string &file)
{
	const auto text = contents_of(file);

	if (!text)
		throw ConfigError("cannot read \"" + file + "\"");
	try
	{
		return parse_config(*text, sink_kinds(), missing_kinds());
	}
	catch (const ConfigError &error)
	{
		throw ConfigError(file + ": " + error.what());
	}
}

} // namespace relay
