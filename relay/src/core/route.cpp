// Which route a message takes; see route.h.
#include "core/route.h"

#include "core/fields.h"

#include <algorithm>

namespace relay {

namespace {

bool
fits(const Text &pattern, const Text &value)
{
	return !pattern || (value && glob(*pattern, *value));
}

bool
matches(const Match &match, const Message &message)
{
	return fits(match.queue, message.queue) && fits(match.event_type, message.event_type) &&
		   fits(match.aggregate_type, message.aggregate_type) &&
		   std::all_of(match.headers.begin(), match.headers.end(),
					   [&](const auto &header) { return fits(header.second, header_of(message, header.first)); });
}

} // namespace

Routes::Routes(std::vector<Route> routes) : routes(std::move(routes)) {}

const Route *
Routes::of(const Message &message) const
{
	const auto found =
		std::find_if(routes.begin(), routes.end(), [&](const Route &route) { return matches(route.match, message); });

	return found == routes.end() ? nullptr : &*found;
}

std::vector<std::string>
Routes::sinks_of(std::string_view queue) const
{
	std::vector<std::string> result;

	for (const Route &route : routes)
	{
		const Match &match = route.match;
		if (match.queue && !glob(*match.queue, queue))
			continue;
		if (std::find(result.begin(), result.end(), route.sink) == result.end())
			result.push_back(route.sink);
		if (!match.event_type && !match.aggregate_type && match.headers.empty())
			break; // takes all that is left
	}
	return result;
}

std::string
default_topic(const Message &message)
{
	if (message.routing_key && !message.routing_key->empty())
		return *message.routing_key;
	std::string result = "events.";
	for (const char c : message.event_type)
		if (c == '_')
			result += '.';
		else
			result += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
	return result;
}

} // namespace relay
