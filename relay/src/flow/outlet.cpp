#include "flow/outlet.h"

#include <algorithm>
#include <limits>

#include <poll.h>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr size_t text_limit = 2048; // bytes of what a sink said
constexpr auto tick = 1000ms;       // the state is shown, leases are looked at

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

Outlet::Outlet(const SinkConfig &config, bool fixed, Observers observers)
	: settings(config.settings), binding(config.binding), taxonomy(config.taxonomy()), fixed(fixed),
	  observers(observers), sink(config.make())
{
	state.type = settings.type;
	state.max_in_flight = settings.max_in_flight;
	counted = Clock::now();
	update_room();
	sink->start(*this);
	thread = std::thread([this] { run(); });
}

Outlet::~Outlet()
{
	mailbox->post(Stop{});
	thread.join();
	observers.board.remove_sink(settings.name);
}

void
Outlet::submit(Parcel parcel)
{
	mailbox->post(std::move(parcel));
}

void
Outlet::withdraw(const std::shared_ptr<Results> &results, uint64_t number)
{
	mailbox->post(Withdraw{results, number});
}

void
Outlet::withdraw_all(const std::shared_ptr<Results> &results)
{
	mailbox->post(Withdraw{results, {}});
}

void
Outlet::watch(std::weak_ptr<Results> watcher)
{
	mailbox->post(Watch{std::move(watcher)});
}

void
Outlet::set_fixed(bool fixed)
{
	mailbox->post(Fixed{fixed});
}

void
Outlet::answer(uint64_t ticket, Answer answer)
{
	mailbox->post(Answered{ticket, std::move(answer)});
}

void
Outlet::blocked(bool blocked)
{
	mailbox->post(Blocked{blocked});
}

void
Outlet::run()
{
	while (!stopping)
	{
		pollfd wait{mailbox->descriptor(), POLLIN, 0};

		poll(&wait, 1, static_cast<int>(until_next(Clock::now()).count()));
		for (Event &event : mailbox->take())
			std::visit([this](auto &&happened) { on(std::move(happened)); }, std::move(event));

		auto now = Clock::now();
		time_out(now);
		probe(now);
		hand_over(now);
		update_room();
		show(now);
	}
	// The sink gives no answer after its end; what it gave before is in the mailbox.
	sink.reset();
	for (Event &event : mailbox->take())
		std::visit([this](auto &&happened) { on(std::move(happened)); }, std::move(event));
	return_all();
}

std::chrono::milliseconds
Outlet::until_next(Clock::time_point now) const
{
	auto next = shown + tick;

	if (!deadlines.empty())
		next = std::min(next, deadlines.front().first);
	for (const auto &[name, endpoint] : endpoints)
	{
		if (endpoint.breaker.state() == Breaker::State::open)
			next = std::min(next, endpoint.breaker.probe_at());
	}
	return std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(next - now));
}

// ---------------------------------------------------------------- what comes in

void
Outlet::on(Parcel parcel)
{
	auto now = Clock::now();
	std::string event_type = parcel.message.event_type;
	auto mapped = map(*parcel.route, binding, std::move(parcel.message));
	Answer refused;

	if (auto *refusal = std::get_if<Refusal>(&mapped))
		refused = {.code = refusal->code, .text = refusal->text};
	else if (auto problem = sink->objection(std::get<Delivery>(mapped)))
		refused = {.code = "ILLEGAL_DESTINATION", .text = *problem};
	if (!refused.code.empty())
	{
		state.refused++;
		observers.metrics.failed(settings.name, event_type, refused.code);
		parcel.results->ended({parcel.number, Verdict::refused, std::move(refused), now, now});
		return;
	}

	auto delivery = std::make_unique<Delivery>(std::move(std::get<Delivery>(mapped)));
	Endpoint &endpoint = endpoint_of(*delivery);
	Waiting one{std::move(delivery), parcel.number, std::move(parcel.results), std::move(parcel.lease_end)};

	if (stopping || endpoint.breaker.state() == Breaker::State::open ||
		endpoint.breaker.state() == Breaker::State::probing)
		return untried(one, delay_of(endpoint));
	if (endpoint.waiting.empty())
		turns.push_back(&endpoint);
	endpoint.waiting.push_back(std::move(one));
	waiting++;
}

void
Outlet::on(Answered answered)
{
	auto found = open.find(answered.ticket);

	if (found == open.end())
		return; // too late: it had timed out

	Open one = std::move(found->second);
	open.erase(found);
	finish(std::move(one), std::move(answered.answer));
}

void
Outlet::on(Blocked blocked)
{
	is_blocked = blocked.blocked;
	state.blocked = is_blocked;
	log(is_blocked ? Level::warning : Level::info,
		is_blocked ? "the sink accepts nothing for now" : "the sink accepts messages again", {{"sink", settings.name}});
}

void
Outlet::on(Probed probed)
{
	auto found = endpoints.find(probed.endpoint);

	if (found == endpoints.end() || found->second.breaker.state() != Breaker::State::probing)
		return;
	found->second.breaker.probed(probed.answer.accepted, Clock::now(), chance());
	if (probed.answer.accepted)
		log(Level::info, "the sink can be reached again", {{"sink", settings.name}, {"endpoint", probed.endpoint}});
	else
		log(Level::debug, "the sink is still away",
			{{"sink", settings.name},
			 {"endpoint", probed.endpoint},
			 {"code", probed.answer.code},
			 {"error", probed.answer.text}});
}

void
Outlet::on(Withdraw withdraw)
{
	for (auto &[name, endpoint] : endpoints)
	{
		std::deque<Waiting> kept;

		for (Waiting &one : endpoint.waiting)
		{
			if (one.results == withdraw.results && (!withdraw.number || *withdraw.number == one.number))
			{
				untried(one, 0ms);
				waiting--;
			}
			else
				kept.push_back(std::move(one));
		}
		endpoint.waiting = std::move(kept);
		if (endpoint.waiting.empty())
			std::erase(turns, &endpoint);
	}
}

void
Outlet::on(Watch watch)
{
	std::erase_if(watchers, [&](const auto &other) {
		return other.expired() || (!other.owner_before(watch.watcher) && !watch.watcher.owner_before(other));
	});
	watchers.push_back(std::move(watch.watcher));
}

Outlet::Endpoint &
Outlet::endpoint_of(const Delivery &delivery)
{
	std::string name = sink->endpoint(delivery);
	Endpoint &endpoint = endpoints[name];

	endpoint.name = std::move(name);
	return endpoint;
}

// ---------------------------------------------------------------- what goes out

void
Outlet::hand_over(Clock::time_point now)
{
	std::vector<std::unique_ptr<Delivery>> batch;
	size_t idle = 0; // endpoints in turn that could not go on

	while (!is_blocked && !turns.empty() && idle < turns.size() && open.size() < settings.max_in_flight)
	{
		Endpoint *endpoint = turns.front();

		turns.pop_front();
		idle = hand_next(*endpoint, now, batch) ? 0 : idle + 1;
		if (!endpoint->waiting.empty())
			turns.push_back(endpoint);
	}
	if (!batch.empty())
		sink->deliver(std::move(batch));
}

bool
Outlet::hand_next(Endpoint &endpoint, Clock::time_point now, std::vector<std::unique_ptr<Delivery>> &batch)
{
	if (!endpoint.breaker.admits(endpoint.in_hand) ||
		(settings.max_per_endpoint > 0 && endpoint.in_hand >= settings.max_per_endpoint))
		return false;

	Waiting one = std::move(endpoint.waiting.front());
	endpoint.waiting.pop_front();
	waiting--;
	if (one.lease_end->load() <= now)
	{
		untried(one, 0ms);
		return true;
	}

	const Message &message = one.delivery->message;
	Open handed{.number = one.number,
				.results = std::move(one.results),
				.endpoint = &endpoint,
				.handed = now,
				.handed_wall = std::chrono::system_clock::now(),
				.created_at = message.created_at,
				.event_type = message.event_type,
				.trace_id = {},
				.span = nullptr};
	one.delivery->ticket = ++last_ticket;
	trace(*one.delivery, handed);
	endpoint.in_hand++;
	deadlines.emplace_back(now + settings.timeout, last_ticket);
	open.emplace(last_ticket, std::move(handed));
	batch.push_back(std::move(one.delivery));
	return true;
}

// The message's own traceparent is the parent of a span of ours, whose context goes on in its place.
void
Outlet::trace(Delivery &delivery, Open &open) const
{
	for (auto &[name, value] : delivery.headers)
	{
		if (name != "traceparent")
			continue;

		auto parent = parse_traceparent(value);
		if (!parent)
			return;
		open.trace_id = parent->trace_id_hex();
		if (!observers.tracer.on())
			return;
		auto context = parent->child();
		value = context.traceparent();
		if (!parent->sampled())
			return;
		bool in_exchange = !delivery.to.exchange.empty();
		open.span = std::make_unique<Span>(Span{.parent = *parent,
												.context = context,
												.destination = in_exchange ? delivery.to.exchange : delivery.to.topic,
												.system = settings.type,
												.event_id = delivery.message.event_id,
												.outbox_id = delivery.message.outbox_id,
												.queue = delivery.message.queue,
												.key = delivery.to.key.value_or(""),
												.routing_key = in_exchange ? delivery.to.topic : "",
												.body_size = delivery.body.size(),
												.began = open.handed_wall,
												.ended = {},
												.error = {}});
		return;
	}
}

// ---------------------------------------------------------------- what comes of it

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
		Endpoint &endpoint = *one.endpoint;
		open.erase(found);
		// A sink that has said nothing at all since the hand-over is away, whatever its connection says.
		bool mute = endpoint.last_answer < one.handed;
		finish(std::move(one),
			   {.code = "TIMEOUT", .text = "no answer within " + std::to_string(settings.timeout.count()) + " ms"});
		if (mute)
			away(endpoint, now);
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
	bool timed_out = answer.code == "TIMEOUT";

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
		result.answer = std::move(answer);
		one.results->ended(std::move(result));
		return;
	}

	answer.text = redact(answer.text);
	cut(answer.text);
	Fault fault = taxonomy.of(answer.code);
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
	if (fault == Fault::sink)
		away(endpoint, now);
	else if (!timed_out)
		endpoint.breaker.answered();
	result.verdict = fault == Fault::message ? Verdict::refused : Verdict::try_again;
	result.answer = std::move(answer);
	one.results->ended(std::move(result));
}

void
Outlet::away(Endpoint &endpoint, Clock::time_point now)
{
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
	give_back(endpoint);
}

void
Outlet::give_back(Endpoint &endpoint)
{
	auto delay = delay_of(endpoint);

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
		if (endpoint.breaker.state() != Breaker::State::open || endpoint.breaker.probe_at() > now)
			continue;
		endpoint.breaker.probing();
		sink->probe(name, [box = mailbox, name = name](Answer answer) { box->post(Probed{name, std::move(answer)}); });
	}
}

void
Outlet::untried(const Waiting &one, std::chrono::milliseconds delay)
{
	Result result{.number = one.number};

	result.delay = delay;
	one.results->ended(std::move(result));
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
		give_back(endpoint);
	for (auto &[ticket, one] : open)
	{
		Result result{.number = one.number,
					  .verdict = Verdict::try_again,
					  .answer = {},
					  .handed = one.handed,
					  .answered = Clock::now()};

		result.answer = {.code = "SINK_STOPPED", .text = "the relay stopped before the sink had answered"};
		one.results->ended(std::move(result));
	}
	open.clear();
}

// ---------------------------------------------------------------- what is seen

void
Outlet::update_room()
{
	// As many may wait as are in its hands: then it never waits for the database. Few more are not worth a claim.
	const size_t capacity = 2 * settings.max_in_flight, taken = std::min(capacity, waiting + open.size());
	size_t before = room(), now = 0;
	bool closed = endpoints.empty(), half_open = false;

	for (const auto &[name, endpoint] : endpoints)
	{
		// Where addresses come from messages, the next one may lead elsewhere.
		closed = closed || endpoint.breaker.closed() || (!fixed && !name.empty());
		half_open = half_open || (endpoint.breaker.state() == Breaker::State::half_open &&
								  endpoint.in_hand + endpoint.waiting.size() == 0);
	}
	if (closed && capacity - taken >= capacity / 4)
		now = capacity - taken;
	else if (!closed && half_open)
		now = 1;
	my_room.store(now, std::memory_order_relaxed);
	if (before == 0 && now > 0)
	{
		for (const auto &watcher : watchers)
		{
			if (auto results = watcher.lock())
				results->nudge();
		}
	}
}

void
Outlet::show(Clock::time_point now)
{
	if (now - shown < tick)
		return;
	state.in_hand = open.size();
	state.waiting = waiting;
	state.endpoints.clear();
	for (const auto &[name, endpoint] : endpoints)
	{
		if (endpoint.breaker.closed())
			continue;
		auto pause = std::chrono::duration_cast<std::chrono::system_clock::duration>(endpoint.breaker.probe_at() - now);
		state.endpoints.push_back(
			{name, std::string(endpoint.breaker.name()), std::chrono::system_clock::now() + pause});
	}
	if (!state.endpoints.empty())
		observers.metrics.breaker_open(settings.name, now - counted);
	counted = now;
	observers.metrics.sink_up(settings.name, state.up());
	observers.board.put(settings.name, state);
	shown = now;
	forget_endpoints();
}

// Endpoints come from messages, so there may be any number of them.
void
Outlet::forget_endpoints()
{
	std::set<const Endpoint *> held;

	for (const auto &[ticket, one] : open)
		held.insert(one.endpoint);
	std::erase_if(endpoints, [&](const auto &entry) {
		const Endpoint &endpoint = entry.second;
		return endpoint.breaker.closed() && endpoint.waiting.empty() && endpoint.in_hand == 0 &&
			   !held.contains(&endpoint);
	});
}

} // namespace relay
