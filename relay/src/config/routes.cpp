// See routes.h.
#include "config/routes.h"

#include "core/mapping.h"

#include <algorithm>
#include <climits>

namespace relay {

namespace {

Template
template_of(Section &section, std::string_view key, const std::optional<std::string> &text)
try
{
	return Template(text.value_or(""));
}
catch (const std::invalid_argument &error)
{
	section.refuse(key, std::string("is wrong: ") + error.what());
}

Template
read_template(Section &section, std::string_view key)
{
	return template_of(section, key, section.maybe_text(key));
}

// topic, or as the protocol calls it.
Template
read_topic(Section &section, const SinkKind &kind)
{
	struct Alias {
		std::string_view name;
		Binding binding;
	};
	constexpr Alias aliases[] = {{"subject", Binding::nats}, {"routing_key", Binding::amqp}, {"url", Binding::http}};
	std::string_view used = "topic";
	std::optional<std::string> text = section.maybe_text("topic");

	for (const Alias &alias : aliases)
	{
		auto value = section.maybe_text(alias.name);
		if (!value)
			continue;
		if (kind.binding != alias.binding)
			section.refuse(alias.name, "is not for a sink of type " + std::string(kind.type) + "; write topic");
		if (text)
			section.refuse(alias.name, "is another word for topic, which is there as well");
		text = std::move(value);
		used = alias.name;
	}
	if (text && text->empty())
		section.refuse(used, "is empty");
	return template_of(section, used, text ? text : std::string(kind.default_topic));
}

Template
read_for(Section &section, std::string_view key, const SinkKind &kind, Binding binding)
{
	if (kind.binding != binding && section.has(key))
		section.refuse(key, "is not for a sink of type " + std::string(kind.type));
	return read_template(section, key);
}

Body
read_body(Section &section)
{
	const std::pair<std::string, Body> bodies[] = {{"payload", Body::payload},
												   {"envelope", Body::envelope},
												   {"cloudevents-binary", Body::cloudevents_binary},
												   {"cloudevents-structured", Body::cloudevents_structured}};
	std::vector<std::string> names;

	for (const auto &[name, body] : bodies)
		names.push_back(name);
	const std::string chosen = section.choice("body", "payload", names);
	return bodies[std::find(names.begin(), names.end(), chosen) - names.begin()].second;
}

Match
read_match(Section &section)
{
	Match match;

	match.queue = section.maybe_text("queue");
	match.event_type = section.maybe_text("event_type");
	match.aggregate_type = section.maybe_text("aggregate_type");
	match.headers = section.free("headers");
	return match;
}

void
read_headers(Section &section, const SinkKind &kind, Route &route)
{
	const auto own = mapping::reserved_names(route, kind.binding);

	for (const auto &[name, text] : section.free("header"))
	{
		const auto same = [&, &name = name](const std::string &one) {
			return mapping::same_name(kind.binding, one, name);
		};
		if (std::any_of(own.begin(), own.end(), same))
			section.refuse("header", "\"" + name + "\" would replace one of the relay's own");
		try
		{
			mapping::check_header(kind.binding, name, "");
		}
		catch (const mapping::Failure &failure)
		{
			section.refuse("header", "is wrong: " + failure.refusal.text);
		}
		route.headers.emplace_back(name, template_of(section, "header", text));
	}
}

const SinkConfig &
read_sink(Section &section, const std::map<std::string, SinkConfig> &sinks, std::string &name)
{
	name = sinks.size() == 1 ? section.text("sink", sinks.begin()->first) : section.text("sink");
	const auto found = sinks.find(name);
	std::vector<std::string> names;

	if (found != sinks.end())
		return found->second;
	for (const auto &[one, config] : sinks)
		names.push_back(one);
	section.refuse("sink", "is \"" + name + "\", but there is no [sink." + name + "]" + suggestion(name, names));
}

Route
read_route(Section &section, const std::map<std::string, SinkConfig> &sinks, std::span<const SinkKind> kinds)
{
	Route route;
	const SinkConfig &sink = read_sink(section, sinks, route.sink);
	const SinkKind &kind = *kind_of(kinds, sink.settings.type);

	route.match = read_match(section);
	route.debezium = section.choice("preset", "none", {"none", "debezium"}) == "debezium";
	route.body = read_body(section);
	if (route.debezium && route.body != Body::payload)
		section.refuse("body", "must be payload with preset = \"debezium\"");
	route.topic = read_topic(section, kind);
	route.exchange = read_for(section, "exchange", kind, Binding::amqp);
	route.method = read_for(section, "method", kind, Binding::http);
	if (section.has("key"))
		route.key = read_template(section, "key");
	const bool cloudevents = route.body == Body::cloudevents_binary || route.body == Body::cloudevents_structured;
	if (!cloudevents && section.has("source"))
		section.refuse("source", "is for CloudEvents, but body is not");
	route.source = read_template(section, "source");
	if (section.has("schema_version"))
		route.schema_version = static_cast<int>(section.number("schema_version", 1, 1, INT_MAX));
	read_headers(section, kind, route);
	section.done();
	return route;
}

bool
takes_all(const Match &match)
{
	const auto any = [](const Text &pattern) { return !pattern || *pattern == "*"; };
	return any(match.queue) && any(match.event_type) && !match.aggregate_type && match.headers.empty();
}

Fault
read_class(Section &section)
{
	const std::string name = section.choice("class", "", {"refused", "try_again", "away"});
	return name == "refused" ? Fault::message : name == "away" ? Fault::sink : Fault::moment;
}

std::vector<std::string>
names_of(const SinkKind &kind)
{
	std::vector<std::string> result;

	for (const auto codes : {kind.codes(), common_codes()})
		for (const Code &code : codes)
			result.emplace_back(code.code);
	return result;
}

void
read_override(Section &section, std::map<std::string, SinkConfig> &sinks, std::span<const SinkKind> kinds)
{
	const std::string code = section.text("code");
	const Fault fault = read_class(section);
	std::string only;
	std::vector<std::string> names;
	bool known = false;

	if (section.has("sink"))
		read_sink(section, sinks, only);
	for (auto &[name, sink] : sinks)
	{
		if (!only.empty() && name != only)
			continue;
		const auto codes = names_of(*kind_of(kinds, sink.settings.type));
		names.insert(names.end(), codes.begin(), codes.end());
		if (std::find(codes.begin(), codes.end(), code) == codes.end())
			continue;
		known = true;
		sink.overrides[code] = fault;
	}
	if (!known)
		section.refuse("code", "is \"" + code + "\", which " +
								   (only.empty() ? std::string("no sink has") : "sink " + only + " does not have") +
								   suggestion(code, names));
	section.done();
}

} // namespace

const SinkKind *
kind_of(std::span<const SinkKind> kinds, std::string_view type)
{
	const auto found =
		std::find_if(kinds.begin(), kinds.end(), [&](const SinkKind &kind) { return kind.type == type; });
	return found == kinds.end() ? nullptr : &*found;
}

std::shared_ptr<const Routes>
read_routes(Section &root, const std::map<std::string, SinkConfig> &sinks, std::span<const SinkKind> kinds)
{
	std::vector<Section> sections = root.sections("route");
	std::vector<Route> routes;

	if (sections.empty() && sinks.size() > 1)
		root.refuse("route", "is missing: with several sinks, [[route]] says what goes where");
	if (sections.empty())
	{
		// Everything to the one sink, as a [[route]] without any key says.
		const toml::table none;
		Section section(none, "route");
		routes.push_back(read_route(section, sinks, kinds));
	}
	for (Section &section : sections)
	{
		if (!routes.empty() && takes_all(routes.back().match))
			root.refuse("route", "has no use after the one that matches everything: " + section.path());
		routes.push_back(read_route(section, sinks, kinds));
	}
	return std::make_shared<const Routes>(std::move(routes));
}

void
read_overrides(Section &root, std::map<std::string, SinkConfig> &sinks, std::span<const SinkKind> kinds)
{
	for (Section &section : root.sections("override"))
		read_override(section, sinks, kinds);
}

} // namespace relay
