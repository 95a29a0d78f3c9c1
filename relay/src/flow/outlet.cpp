#include "flow/outlet.h"

#include <algorithm>
#include <limits>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr size_t most_away = 1000; // endpoints
constexpr auto tick = 1000ms;      // the state is shown, leases are looked at

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
	end();
	thread.join();
}

bool
Outlet::end()
{
	if (!std::exchange(asked_to_end, true))
		mailbox->post(Stop{});
	return has_ended;
}

void
Outlet::submit(Parcel parcel)
{
	mailbox->put(std::move(parcel));
}

void
Outlet::flush()
{
	mailbox->flush();
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
Outlet::retire(bool replaced)
{
	if (replaced)
		hidden = true;
	mailbox->post(Retire{});
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
Outlet::answer(std::vector<Answered> answered)
{
	for (Answered &one : answered)
		mailbox->put(std::move(one));
	mailbox->flush();
}

void
Outlet::blocked(bool blocked)
{
	mailbox->post(Blocked{blocked});
}

void
Outlet::run()
{
	std::vector<Event> events;

	while (!stopping)
	{
		sink->wait(mailbox->descriptor(), until_next(Clock::now()));
		mailbox->take(events);
		for (Event &event : events)
			std::visit([this](auto &&happened) { on(std::move(happened)); }, std::move(event));

		auto now = Clock::now();
		time_out(now);
		probe(now);
		hand_over(now);
		update_room();
		told.flush();
		show(now);
	}
	// The sink gives no answer after its end; what it gave before is in the mailbox.
	sink.reset();
	mailbox->take(events);
	for (Event &event : events)
		std::visit([this](auto &&happened) { on(std::move(happened)); }, std::move(event));
	return_all();
	told.flush();
	has_ended = true;
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
		else if (endpoint.breaker.state() == Breaker::State::probing)
			next = std::min(next, endpoint.probe_until);
	}
	return std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(next - now));
}

// ---------------------------------------------------------------- what comes in

void
Outlet::on(Parcel parcel)
{
	Delivery &delivery = *parcel.delivery;
	Answer refused;

	if (retired)
		return tell(parcel.results, {.number = parcel.number});
	if (auto refusal = map(*parcel.route, binding, delivery))
		refused = {.code = std::move(refusal->code), .text = std::move(refusal->text)};
	else if (auto problem = sink->objection(delivery))
		refused = {.code = "ILLEGAL_DESTINATION", .text = *problem};
	if (!refused.code.empty())
	{
		state.refused++;
		observers.metrics.failed(settings.name, delivery.message.event_type, refused.code);
		auto now = Clock::now();
		tell(parcel.results, {parcel.number, Verdict::refused, std::move(refused), now, now});
		return;
	}

	Endpoint &endpoint = endpoint_of(delivery);
	Waiting one{std::move(parcel.delivery), parcel.number, std::move(parcel.results), std::move(parcel.lease_end)};

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
Outlet::on(Retire)
{
	retired = true;
	for (auto &[name, endpoint] : endpoints)
		give_back(endpoint, 0ms);
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

// ---------------------------------------------------------------- what is seen

void
Outlet::update_room()
{
	// As many may wait as are in its hands: then it never waits for the database. Few more are not worth a claim, and
	// one asks for a message to try with.
	const size_t capacity = 2 * settings.max_in_flight, worth = std::max<size_t>(capacity / 4, 2),
				 taken = std::min(capacity, waiting + open.size());
	size_t before = room(), now = 0;
	bool closed = endpoints.empty(), half_open = false;

	for (const auto &[name, endpoint] : endpoints)
	{
		// Where addresses come from messages, the next one may lead elsewhere.
		closed = closed || endpoint.breaker.closed() || (!fixed && !name.empty());
		half_open = half_open || (endpoint.breaker.state() == Breaker::State::half_open &&
								  endpoint.in_hand + endpoint.waiting.size() == 0);
	}
	if (closed && capacity - taken >= worth)
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
	shown = now;
	forget_endpoints();
	if (hidden)
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
}

// Endpoints come from messages, so there may be any number of them. Of those that are away and have nothing to do the
// oldest are forgotten beyond a limit: the next message to one finds out again.
void
Outlet::forget_endpoints()
{
	auto idle = [](const Endpoint &endpoint) { return endpoint.waiting.empty() && endpoint.in_hand == 0; };
	std::vector<std::pair<Clock::time_point, std::string>> away;

	std::erase_if(endpoints, [&](const auto &entry) { return entry.second.breaker.closed() && idle(entry.second); });
	if (endpoints.size() <= most_away)
		return;
	for (const auto &[name, endpoint] : endpoints)
	{
		if (idle(endpoint))
			away.emplace_back(endpoint.opened, name);
	}
	std::sort(away.begin(), away.end());
	away.resize(std::min(away.size(), endpoints.size() - most_away));
	for (const auto &[opened, name] : away)
		endpoints.erase(name);
}

} // namespace relay
