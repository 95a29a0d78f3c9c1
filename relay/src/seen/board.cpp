// The newest state of each source and sink, and what it means for the readiness.
//
// Guarantees: the mutex is held for a copy and no longer.
#include "seen/board.h"

#include <algorithm>

namespace relay {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto watched_for = 60s;
// A source reports each second, whatever its poll interval.
constexpr std::chrono::milliseconds shortest_patience = 3s;

void
add_line(std::string &text, const std::string &line)
{
	text += text.empty() ? line : "\n" + line;
}

} // namespace

std::string
SourceState::trouble() const
{
	const auto because = [this](const std::string &what) { return problem.empty() ? what : what + ": " + problem; };

	if (!connected)
	{
		return because("the database is not connected");
	}
	if (!listening)
	{
		return because("LISTEN does not stand");
	}
	if (!last_claim)
	{
		return because("no claim was answered yet");
	}
	const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *last_claim);
	if (age > std::max(3 * poll_interval, shortest_patience))
	{
		return because("the last claim was answered " + std::to_string(age.count() / 1000) + " s ago");
	}
	return {};
}

bool
SinkState::up() const
{
	return std::none_of(endpoints.begin(), endpoints.end(),
						[](const auto &it) { return it.endpoint.empty() && it.breaker != "closed"; });
}

void
Board::put(const std::string &name, SourceState state)
{
	const std::scoped_lock lock(mutex);
	my_sources.insert_or_assign(name, std::move(state));
}

void
Board::put(const std::string &name, SinkState state)
{
	const std::scoped_lock lock(mutex);
	my_sinks.insert_or_assign(name, std::move(state));
}

void
Board::remove_source(const std::string &name)
{
	const std::scoped_lock lock(mutex);
	my_sources.erase(name);
}

void
Board::remove_sink(const std::string &name)
{
	const std::scoped_lock lock(mutex);
	my_sinks.erase(name);
}

std::map<std::string, SourceState>
Board::sources() const
{
	const std::scoped_lock lock(mutex);
	return my_sources;
}

std::map<std::string, SinkState>
Board::sinks() const
{
	const std::scoped_lock lock(mutex);
	return my_sinks;
}

void
Board::configuration(std::string problem)
{
	const std::scoped_lock lock(mutex);
	my_configuration = std::move(problem);
}

void
Board::looked()
{
	const std::scoped_lock lock(mutex);
	last_look = Clock::now();
}

bool
Board::watched() const
{
	const std::scoped_lock lock(mutex);
	return last_look && Clock::now() - *last_look < watched_for;
}

bool
Board::ready(std::string &problem) const
{
	const std::scoped_lock lock(mutex);
	size_t well = 0, up = 0;

	problem.clear();
	for (const auto &[name, source] : my_sources)
	{
		const auto why = source.trouble();
		well += why.empty() ? 1 : 0;
		if (!why.empty())
		{
			add_line(problem, "source " + name + ": " + why);
		}
	}
	for (const auto &[name, sink] : my_sinks)
	{
		up += sink.up() ? 1 : 0;
		if (!sink.up())
		{
			add_line(problem, "sink " + name + ": away");
		}
	}
	if (my_sources.empty())
	{
		problem = "no source has started yet";
	}
	if (!my_configuration.empty())
	{
		add_line(problem,
				 "configuration: wrong when it was read again, the one before is in force: " + my_configuration);
	}
	return well > 0 && (up > 0 || my_sinks.empty());
}

} // namespace relay
