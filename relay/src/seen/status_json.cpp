// What the status page shows, for programs.
#include "seen/page.h"
#include "seen/html.h"
#include "core/secret.h"

#include <nlohmann/json.hpp>

namespace relay {

namespace {

using Json = nlohmann::ordered_json;

Json
queue_json(const QueueState &queue)
{
	return {{"queue", queue.queue},     {"paused", queue.paused},
			{"due", queue.due},         {"oldest_due_seconds", queue.oldest_due_seconds},
			{"leased", queue.leased},   {"scheduled", queue.scheduled},
			{"expired", queue.expired}, {"blocked_keys", queue.blocked_keys},
			{"dead", queue.dead}};
}

Json
source_json(const PageData &data, const SourceState &source)
{
	Json result{{"connected", source.connected}, {"listening", source.listening}, {"problem", redact(source.problem)},
				{"last_claim_seconds", nullptr}, {"in_flight", source.in_flight}, {"unrecorded", source.unrecorded},
				{"claimed", source.claimed},     {"accepted", source.accepted},   {"failed", source.failed},
				{"queues", Json::array()}};

	if (source.last_claim)
	{
		result["last_claim_seconds"] = std::chrono::duration<double>(data.steady_now - *source.last_claim).count();
	}
	for (const auto &queue : source.queues)
	{
		result["queues"].push_back(queue_json(queue));
	}
	return result;
}

Json
sink_json(const SinkState &sink)
{
	Json result{{"type", sink.type},
				{"up", sink.up()},
				{"blocked", sink.blocked},
				{"in_hand", sink.in_hand},
				{"max_in_flight", sink.max_in_flight},
				{"waiting", sink.waiting},
				{"accepted", sink.accepted},
				{"refused", sink.refused},
				{"try_again", sink.try_again},
				{"away", sink.away},
				{"endpoints", Json::array()},
				{"errors", Json::array()}};

	for (const auto &it : sink.endpoints)
	{
		result["endpoints"].push_back({{"endpoint", redact(it.endpoint)}, {"breaker", it.breaker}});
	}
	for (const auto &it : sink.errors)
	{
		result["errors"].push_back({{"at", html::utc(it.at)}, {"code", it.code}, {"text", redact(it.text)}});
	}
	return result;
}

} // namespace

std::string
status_json(const PageData &data)
{
	Json result{{"ready", data.ready},
				{"problem", redact(data.problem)},
				{"sources", Json::object()},
				{"sinks", Json::object()}};

	for (const auto &[name, source] : data.sources)
	{
		result["sources"][name] = source_json(data, source);
		if (const auto it = data.claimed.find(name); it != data.claimed.end())
		{
			result["sources"][name]["claimed_per_second"] = html::newest(it->second);
		}
	}
	for (const auto &[name, sink] : data.sinks)
	{
		result["sinks"][name] = sink_json(sink);
		if (const auto it = data.rates.find(name); it != data.rates.end())
		{
			result["sinks"][name]["accepted_per_second"] = html::newest(it->second.accepted);
			result["sinks"][name]["failed_per_second"] = html::newest(it->second.failed);
		}
	}
	return result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace relay
