// The whole of it: sources, outlets, what is seen from outside, signals.
//
// Guarantees: SIGTERM and SIGINT end it within the grace, with nothing delivered twice on its account; a second one
// ends it at once. SIGHUP reads the configuration again: what is wrong is refused and changes nothing, and sources and
// sinks whose part did not change go on undisturbed. A sink that is no longer wanted ends when nothing is under way to
// it.
#pragma once

#include "config/config.h"
#include "flow/source.h"
#include "seen/history.h"
#include "seen/server.h"

#include <list>

namespace relay {

class Relay {
public:
	Relay(std::string file, Config config);
	~Relay();

	int run(int signals); // a signalfd; the exit status

private:
	void apply(Config config);
	std::shared_ptr<const Routing> make_routing(const Config &config);
	void renew_sources(const Config &config, const std::shared_ptr<const Routing> &routing);
	void serve(const std::string &listen);
	void reload();
	[[nodiscard]] bool has_source(const std::string &name) const;
	void retire();
	void stop();

	std::string file;
	Config config;
	Metrics metrics;
	Board board;
	History history;
	std::unique_ptr<Tracer> tracer;
	std::unique_ptr<StatusServer> server;
	std::string serving;
	std::shared_ptr<const Routing> routing;
	std::list<std::shared_ptr<Outlet>> old_outlets;
	std::list<std::unique_ptr<Source>> sources, old_sources;
};

} // namespace relay
