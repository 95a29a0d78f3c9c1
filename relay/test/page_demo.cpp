// Serves the status page with made-up states, to look at it and for t/160_page.pl.
//
//   page_demo LISTEN STATE      STATE: usual, trouble, hostile, many, empty
//
// It prints the port, and serves until it is killed.
#include "seen/board.h"
#include "seen/history.h"
#include "seen/metrics.h"
#include "seen/server.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>

#include <unistd.h>

using namespace relay;
using namespace std::chrono_literals;

namespace {

struct Demo {
	Board board;
	History history{board};
	Metrics metrics;
	std::map<std::string, SourceState> sources;
	std::map<std::string, SinkState> sinks;
	int step = 0;

	// One step is five seconds of the history; a source's number shapes its curve.
	void play(int steps)
	{
		const auto begin = std::chrono::steady_clock::now() - steps * 5s;
		for (int i = 0; i < steps; i++, step++)
		{
			double shift = 0;
			for (auto &[name, source] : sources)
			{
				source.claimed += grown(400, shift += 1);
				board.put(name, source);
			}
			for (auto &[name, sink] : sinks)
			{
				sink.accepted += grown(200, shift += 1);
				sink.try_again += step % 60 > 50 ? grown(12, shift) : 0;
				board.put(name, sink);
			}
			history.sample(begin + step * 5s);
		}
	}

	[[nodiscard]] uint64_t grown(double level, double shift) const
	{
		const double wave = std::sin(step / 14. + shift) + std::sin(step / 5. + 3 * shift) / 3;
		return static_cast<uint64_t>(5 * level * (1.4 + wave) / shift);
	}
};

QueueState
queue(std::string name, int64_t due, int64_t dead)
{
	QueueState state;

	state.queue = std::move(name);
	state.due = due;
	state.leased = due / 3;
	state.scheduled = due / 7;
	state.dead = dead;
	state.oldest_due_seconds = static_cast<double>(due) / 90;
	return state;
}

SourceState
source(std::vector<QueueState> queues)
{
	SourceState state;

	state.connected = state.listening = true;
	state.last_claim = std::chrono::steady_clock::now() + 1h; // it stays new
	state.in_flight = 412;
	state.claimed = 1'284'551;
	state.accepted = 1'283'990;
	state.failed = 149;
	state.queues = std::move(queues);
	return state;
}

SinkState
sink(std::string type)
{
	SinkState state;

	state.type = std::move(type);
	state.in_hand = 180;
	state.waiting = 12;
	state.max_in_flight = 1000;
	state.accepted = 903'421;
	state.refused = 17;
	state.try_again = 132;
	return state;
}

SinkError
error(std::chrono::seconds ago, std::string code, std::string text)
{
	return {std::chrono::system_clock::now() - ago, std::move(code), std::move(text)};
}

void
usual(Demo &demo)
{
	demo.sources["bank"] = source({queue("default", 0, 0), queue("mail", 1240, 3), queue("orders", 18, 0)});
	demo.sinks["events"] = sink("kafka");
	demo.sinks["partners"] = sink("http");
	demo.sinks["partners"].errors = {
		error(42s, "HTTP_422", "the field \"currency\" is missing"),
		error(400s, "TIMEOUT", "no answer within 30 s"),
	};
}

void
trouble(Demo &demo)
{
	usual(demo);
	demo.sources["shop"] = source({});
	demo.sources["shop"].connected = false;
	demo.sources["shop"].problem = "connection to server at \"10.0.4.17\", port 5432 failed: Connection refused";
	demo.sources["shop"].in_flight = demo.sources["shop"].unrecorded = 38;
	demo.sources["bank"].queues[1].paused = true;
	demo.sources["bank"].queues[2].blocked_keys = 4;
	demo.sinks["events"].endpoints = {{"", "open", std::chrono::system_clock::now() + 40s}};
	demo.sinks["events"].away = 211;
	demo.sinks["events"].errors = {error(3s, "KAFKA__ALL_BROKERS_DOWN", "3/3 brokers are down")};
	demo.sinks["partners"].endpoints = {{"https://hooks.example.com:443", "half open", {}}};
	demo.sinks["work"] = sink("rabbitmq");
	demo.sinks["work"].blocked = true;
}

void
hostile(Demo &demo)
{
	const std::string script = "<script>document.title='broken'</script>\"'&<b title=\"x", longest(180, 'w');

	demo.sources[script] = source({queue(script, 9'999'999'999'999, 9'999'999'999), queue(longest, 1, 1),
								   queue("mixed \xe2\x80\xae right to left \xff not UTF-8", 12, 0)});
	demo.sources[script].queues[0].paused = true;
	demo.sources[script].queues[1].blocked_keys = 123'456'789;
	demo.sources[longest] = source({});
	demo.sources[longest].listening = false;
	demo.sources[longest].problem = script + longest;
	demo.sinks[longest] = sink(script);
	demo.sinks[longest].accepted = demo.sinks[longest].away = 999'999'999'999'999;
	demo.sinks[longest].errors = {error(1s, longest, std::string(2000, 'e')), error(1s, script, script)};
	demo.sinks[script] = sink(longest);
	demo.sinks[script].endpoints = {{"https://" + longest + ".example:443", "open", {}}};
}

void
many(Demo &demo)
{
	for (int s = 0; s < 3; s++)
	{
		std::vector<QueueState> queues;
		for (int i = 0; i < 20; i++)
		{
			queues.push_back(queue("tenant-" + std::to_string(s * 20 + i), i * i * 37, i % 5));
		}
		demo.sources["shard-" + std::to_string(s)] = source(queues);
	}
	for (int i = 0; i < 12; i++)
	{
		demo.sinks["sink-" + std::to_string(i)] = sink(i % 2 ? "http" : "nats");
	}
}

} // namespace

int
main(int argc, char **argv)
{
	const std::map<std::string, std::function<void(Demo &)>> states{
		{"usual", usual}, {"trouble", trouble}, {"hostile", hostile}, {"many", many}, {"empty", [](Demo &) {}}};

	if (argc != 3 || !states.contains(argv[2]))
	{
		std::fprintf(stderr, "usage: page_demo LISTEN usual|trouble|hostile|many|empty\n");
		return 2;
	}
	Demo demo;
	states.at(argv[2])(demo);
	demo.play(150);
	for (const auto &[name, sink] : demo.sinks)
	{
		demo.metrics.published(name, sink.type, 3ms, 12ms);
		demo.metrics.failed(name, sink.type, name);
	}

	try
	{
		const StatusServer server(argv[1], demo.metrics, demo.board, demo.history);
		std::cout << server.port() << std::endl;
		while (true)
		{
			pause();
		}
	}
	catch (const std::exception &error)
	{
		std::fprintf(stderr, "%s\n", error.what());
		return 1;
	}
}
