// Samples of the board's counters, and the rates between them.
#include "seen/history.h"

namespace relay {

History::History(const Board &board) : board(board) {}

History::~History() = default; // the thread is told to stop, and joined

void
History::start()
{
	thread = std::jthread([this](const std::stop_token &stop) {
		std::mutex idle;
		std::unique_lock lock(idle);

		while (!stop.stop_requested())
		{
			sample(std::chrono::steady_clock::now());
			ended.wait_for(lock, stop, interval, [] { return false; });
		}
	});
}

void
History::sample(std::chrono::steady_clock::time_point now)
{
	Sample next{now, {}, {}, {}};

	for (const auto &[name, source] : board.sources())
	{
		next.claimed[name] = source.claimed;
	}
	for (const auto &[name, sink] : board.sinks())
	{
		next.accepted[name] = sink.accepted;
		next.failed[name] = sink.refused + sink.try_again + sink.away;
	}

	const std::scoped_lock lock(mutex);
	samples.push_back(std::move(next));
	if (samples.size() > length + 1)
	{
		samples.pop_front();
	}
}

std::map<std::string, Rates>
History::rates(Counts counts) const
{
	const std::scoped_lock lock(mutex);
	std::map<std::string, Rates> result;

	for (const auto &[name, count] : samples.empty() ? std::map<std::string, uint64_t>{} : samples.back().*counts)
	{
		auto &line = result[name];
		line.resize(length);
		for (size_t i = 1; i < samples.size(); i++)
		{
			const auto &before = samples[i - 1], &after = samples[i];
			const auto from = (before.*counts).find(name), to = (after.*counts).find(name);
			const double seconds = std::chrono::duration<double>(after.at - before.at).count();

			if (from != (before.*counts).end() && to != (after.*counts).end() && seconds > 0)
			{
				const auto more = to->second >= from->second ? to->second - from->second : to->second;
				line[length - samples.size() + i] = static_cast<double>(more) / seconds;
			}
		}
	}
	return result;
}

std::map<std::string, Rates>
History::claimed() const
{
	return rates(&Sample::claimed);
}

std::map<std::string, SinkRates>
History::sinks() const
{
	std::map<std::string, SinkRates> result;

	for (auto &[name, line] : rates(&Sample::accepted))
	{
		result[name].accepted = std::move(line);
	}
	for (auto &[name, line] : rates(&Sample::failed))
	{
		result[name].failed = std::move(line);
	}
	return result;
}

} // namespace relay
