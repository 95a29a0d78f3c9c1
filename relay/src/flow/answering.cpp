// What an outlet makes of answers, of their absence, and of a sink that is away.
#include "flow/outlet.h"

#include <algorithm>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr size_t text_limit = 2048; // bytes of what a sink said

std::string_view
class_of(Fault fault)
{
	switch (fault)
	{
		case Fault::message:
			return "refused";
		case Fault::moment:
			return "try_again";
		case Fault::sink:
			return "away";
	}
	return "";
}

// At most so long, and not in the middle of a character.
void
cut(std::string &text)
{
	if (text.size() <= text_limit)
		return;

	size_t end = text_limit;
	while (end > 0 && (text[end] & 0xc0) == 0x80)
		end--;
	text.resize(end);
}

} // namespace

void
Outlet::time_out(Clock::time_point now)
{
	while (!deadlines.empty())
	{
		auto found = open.find(deadlines.front().second);

		if (found != open.end() && deadlines.front().first > now)
			return;
		deadlines.pop_front();
		if (found == open.end())
			continue;

		Open one = std::move(found->second);
		open.erase(found);
		finish(std::move(one),
			   {.code = "TIMEOUT", .text = "no answer within " + std::to_string(settings.timeout.count()) + " ms"});
	}
}

void
Outlet::finish(Open one, Answer answer)
{
	auto now = Clock::now();
	Endpoint &endpoint = *one.endpoint;
	Result result{.number = one.number,
				  .verdict = Verdict::accepted,
				  .answer = {},
				  .handed = one.handed,
				  .answered = now,
				  .trace_id = one.trace_id};
	bool timed_out = answer.code == "TIMEOUT"; // ours, or the sink's own
	// A sink that has said nothing at all since the hand-over is away, whatever its connection says.
	bool mute = timed_out && endpoint.last_answer < one.handed;

	endpoint.in_hand--;
	if (!timed_out)
		endpoint.last_answer = now;
	if (one.span)
	{
		one.span->ended = std::chrono::system_clock::now();
		one.span->error = answer.accepted ? "" : answer.code;
		observers.tracer.ended(std::move(*one.span));
	}
	if (answer.accepted)
	{
		auto lag = std::chrono::system_clock::now() - one.created_at;

		state.accepted++;
		endpoint.breaker.answered();
		observers.metrics.published(settings.name, one.event_type, now - one.handed, lag);
	}
	else
	{
		Fault fault = count_failure(one, answer);

		if (fault == Fault::sink || mute)
			away(endpoint, one.handed, now);
		else if (!timed_out)
			endpoint.breaker.answered();
		result.verdict = fault == Fault::message ? Verdict::refused : Verdict::try_again;
	}
	result.answer = std::move(answer);
	tell(one.results, std::move(result));
}

// For metrics and the status page; makes its text fit to be kept. Returns its class.
Fault
Outlet::count_failure(const Open &one, Answer &answer)
{
	Fault fault = taxonomy.of(answer.code);

	answer.text = redact(answer.text);
	cut(answer.text);
	if (!taxonomy.known(answer.code))
		observers.metrics.unknown_code(settings.name, answer.code);
	observers.metrics.failed(settings.name, one.event_type, answer.code);
	state.errors.push_front({std::chrono::system_clock::now(), answer.code, answer.text});
	if (state.errors.size() > 5)
		state.errors.pop_back();
	switch (fault)
	{
		case Fault::message:
			state.refused++;
			break;
		case Fault::moment:
			state.try_again++;
			break;
		case Fault::sink:
			state.away++;
			break;
	}
	return fault;
}

void
Outlet::away(Endpoint &endpoint, Clock::time_point handed, Clock::time_point now)
{
	// From before the outage, and told only now: what has been handed over since then knows better.
	if (handed < endpoint.opened)
		return;
	if (endpoint.breaker.away(now, chance()))
	{
		endpoint.opened = now;
		log(Level::warning, "the sink is away; what waits for it is given back",
			{{"sink", settings.name},
			 {"endpoint", endpoint.name},
			 {"class", class_of(Fault::sink)},
			 {"code", state.errors.empty() ? "" : state.errors.front().code},
			 {"error", state.errors.empty() ? "" : state.errors.front().text}});
	}
	give_back(endpoint, delay_of(endpoint));
}

void
Outlet::give_back(Endpoint &endpoint, std::chrono::milliseconds delay)
{
	for (const Waiting &one : endpoint.waiting)
		untried(one, delay);
	waiting -= endpoint.waiting.size();
	endpoint.waiting.clear();
	std::erase(turns, &endpoint);
}

void
Outlet::probe(Clock::time_point now)
{
	for (auto &[name, endpoint] : endpoints)
	{
		// A probe that gets no answer has failed.
		if (endpoint.breaker.state() == Breaker::State::probing && endpoint.probe_until <= now)
			endpoint.breaker.probed(false, now, chance());
		if (endpoint.breaker.state() != Breaker::State::open || endpoint.breaker.probe_at() > now)
			continue;
		endpoint.breaker.probing();
		endpoint.probe_until = now + 2 * settings.timeout;
		sink->probe(name, [box = mailbox, name = name](Answer answer) { box->post(Probed{name, std::move(answer)}); });
	}
}

void
Outlet::tell(const std::shared_ptr<Results> &results, Result result)
{
	results->ended(std::move(result));
	told.add(results);
}

void
Outlet::untried(const Waiting &one, std::chrono::milliseconds delay)
{
	Result result{.number = one.number};

	result.delay = delay;
	tell(one.results, std::move(result));
}

std::chrono::milliseconds
Outlet::delay_of(const Endpoint &endpoint) const
{
	if (endpoint.breaker.state() != Breaker::State::open)
		return 1000ms;
	return std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(endpoint.breaker.probe_at() - Clock::now()));
}

void
Outlet::return_all()
{
	for (auto &[name, endpoint] : endpoints)
		give_back(endpoint, delay_of(endpoint));
	for (auto &[ticket, one] : open)
	{
		Result result{.number = one.number,
					  .verdict = Verdict::try_again,
					  .answer = {},
					  .handed = one.handed,
					  .answered = Clock::now()};

		result.answer = {.code = "SINK_STOPPED", .text = "the relay stopped before the sink had answered"};
		tell(one.results, std::move(result));
	}
	open.clear();
}

} // namespace relay
