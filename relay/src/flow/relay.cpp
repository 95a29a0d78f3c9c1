#include "flow/relay.h"

#include "seen/log.h"

#include <algorithm>
#include <csignal>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace relay {

namespace {

// What is equal goes on.
bool
same(const SinkConfig &a, const SinkConfig &b)
{
	return a.fingerprint == b.fingerprint && a.overrides == b.overrides;
}

// All routes to it have one address.
bool
is_fixed(const Routes &routes, const std::string &sink)
{
	return std::all_of(routes.all().begin(), routes.all().end(), [&](const Route &route) {
		return route.sink != sink || (!route.topic.empty() && route.topic.constant());
	});
}

} // namespace

Relay::Relay(std::string file, Config initial) : file(std::move(file)), history(board)
{
	set_up_log(initial.log);
	tracer = std::make_unique<Tracer>(initial.tracing, metrics);
	history.start();
	serve(initial.listen);
	apply(std::move(initial));
}

Relay::~Relay()
{
	sources.clear();
	old_sources.clear();
	old_outlets.clear();
	routing.reset();
}

void
Relay::serve(const std::string &listen)
{
	if (server && listen == serving)
		return;
	auto make = [&](const std::string &address) {
		return address.empty() ? nullptr : std::make_unique<StatusServer>(address, metrics, board, history);
	};

	server.reset(); // both may have the port
	try
	{
		server = make(listen);
	}
	catch (const std::exception &)
	{
		server = make(serving);
		throw;
	}
	serving = listen;
}

std::shared_ptr<const Routing>
Relay::make_routing(const Config &wanted)
{
	auto made = std::make_shared<Routing>();

	made->routes = wanted.routes;
	for (const auto &[name, sink] : wanted.sinks)
	{
		bool fixed = is_fixed(*wanted.routes, name);
		auto before = config.sinks.find(name);

		if (routing && before != config.sinks.end() && same(before->second, sink))
		{
			auto outlet = routing->outlets.at(name);
			outlet->set_fixed(fixed);
			made->outlets.emplace(name, outlet);
		}
		else
			made->outlets.emplace(name, std::make_shared<Outlet>(sink, fixed, Observers{metrics, board, *tracer}));
	}
	return made;
}

void
Relay::apply(Config wanted)
{
	auto before = routing;
	auto made = make_routing(wanted);

	renew_sources(wanted, made);
	if (before)
	{
		for (const auto &[name, outlet] : before->outlets)
		{
			auto now = made->outlets.find(name);
			if (now != made->outlets.end() && now->second == outlet)
				continue;
			// Sources have the new routes by now.
			outlet->retire(now != made->outlets.end());
			old_outlets.push_back(outlet);
		}
	}
	routing = std::move(made);
	config = std::move(wanted);
}

void
Relay::renew_sources(const Config &wanted, const std::shared_ptr<const Routing> &made)
{
	std::list<std::unique_ptr<Source>> before;

	before.swap(sources);
	for (const SourceSettings &settings : wanted.sources)
	{
		auto found = std::find_if(before.begin(), before.end(),
								  [&](const auto &source) { return source->settings() == settings; });

		if (found != before.end() && wanted.worker_id == config.worker_id)
		{
			(*found)->reroute(made);
			sources.splice(sources.end(), before, found);
		}
		else
			sources.push_back(
				std::make_unique<Source>(settings, wanted.worker_id, made, Observers{metrics, board, *tracer}));
	}
	for (auto &source : before)
	{
		if (has_source(source->settings().name))
			source->hide();
		source->stop(config.grace);
	}
	old_sources.splice(old_sources.end(), before);
}

void
Relay::reload()
{
	try
	{
		Config wanted = read_config(file);

		serve(wanted.listen);
		set_up_log(wanted.log);
		if (wanted.tracing != config.tracing)
			log(Level::warning, "a change of [tracing] takes effect at the next start");
		apply(std::move(wanted));
		log(Level::info, "the configuration was read again", {{"file", file}});
		metrics.reloaded(true);
		board.configuration({});
	}
	catch (const std::exception &error)
	{
		log(Level::error, "the configuration is wrong; the one before stays in force",
			{{"file", file}, {"error", error.what()}});
		metrics.reloaded(false);
		board.configuration(error.what());
	}
}

bool
Relay::has_source(const std::string &name) const
{
	return std::any_of(sources.begin(), sources.end(),
					   [&](const auto &source) { return source->settings().name == name; });
}

// What was replaced ends once nothing uses it. A sink may take its time for that, and this thread has signals to wait
// for.
void
Relay::retire()
{
	std::erase_if(old_sources, [this](const auto &source) {
		const bool ended = source->ended();

		if (ended && !has_source(source->settings().name))
		{
			metrics.forget_source(source->settings().name);
			board.remove_source(source->settings().name);
		}
		return ended;
	});
	std::erase_if(old_outlets, [this](const auto &outlet) {
		const bool ended = outlet.use_count() == 1 && outlet->end();

		if (ended && !(routing && routing->outlets.contains(outlet->name())))
		{
			metrics.forget_sink(outlet->name());
			board.remove_sink(outlet->name());
		}
		return ended;
	});
}

void
Relay::stop()
{
	log(Level::info, "stopping", {{"grace_ms", std::to_string(config.grace.count())}});
	for (auto &source : sources)
		source->stop(config.grace);
	old_sources.splice(old_sources.end(), sources);
	for (const auto &[name, outlet] : routing->outlets)
		old_outlets.push_back(outlet);
	routing.reset();
}

int
Relay::run(int signals)
{
	bool stopping = false;

	while (!stopping || !old_sources.empty() || !old_outlets.empty())
	{
		pollfd wait{signals, POLLIN, 0};
		signalfd_siginfo signal;

		poll(&wait, 1, stopping ? 10 : 200);
		while (read(signals, &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal))
		{
			if (signal.ssi_signo == SIGHUP && !stopping)
				reload();
			else if (signal.ssi_signo != SIGHUP && stopping)
				return 1;
			else if (signal.ssi_signo != SIGHUP)
			{
				stop();
				stopping = true;
			}
		}
		retire();
	}
	log(Level::info, "stopped");
	return 0;
}

} // namespace relay
