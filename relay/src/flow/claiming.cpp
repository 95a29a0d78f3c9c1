// A source's claims, and how messages get into the hands of the outlets.
#include "flow/source.h"
#include "seen/log.h"

#include <algorithm>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr size_t unlimited = SIZE_MAX;
constexpr auto unknown_queue_pause = 10s, refused_pause = 1s;

} // namespace

std::vector<std::string>
Source::queues() const
{
	std::vector<std::string> all;

	if (my_settings.queues.front() != "*")
		return my_settings.queues;
	for (const auto &[queue, ordering] : orderings)
		all.push_back(queue);
	return all;
}

// Of a queue that leads nowhere everything is refused, which takes no room.
size_t
Source::room_of(const std::string &queue) const
{
	size_t room = 0;
	auto sinks = routing->routes->sinks_of(queue);

	if (sinks.empty())
		return unlimited;
	for (const auto &sink : sinks)
	{
		if (auto found = routing->outlets.find(sink); found != routing->outlets.end())
			room = std::max(room, found->second->room());
	}
	return room;
}

// What to claim now, or nothing. A queue whose sinks are all away or full is left out; one whose sink asks for a
// message to try with is claimed alone, and one message of it.
std::optional<ClaimPlan>
Source::plan(Clock::time_point now)
{
	ClaimPlan plan;
	size_t taken = in_flight.size() + asked, least_room = unlimited;

	plan.unread = unread;
	// One at a time, so that it is known which one fails.
	if (most_readable == 1 && asked > 0)
		return {};
	if (stop_at || !appetite.hungry() || now < claim_after || taken >= my_settings.max_in_flight)
		return {};

	auto all = queues();
	for (size_t i = 0; i < all.size(); i++)
	{
		auto unknown = unknown_queues.find(all[i]);
		size_t room = room_of(all[i]);

		if (room == 0 || (unknown != unknown_queues.end() && now < unknown->second))
			continue;
		if (room == 1 || (!suspects.empty() && suspects.front() == all[i]))
		{
			plan.size = room == 1 ? 1 : std::min(my_settings.batch, most_readable);
			plan.queues = {all[i]};
			plan.weights.clear();
			return asked == 0 ? std::optional(plan) : std::nullopt;
		}
		least_room = std::min(least_room, room);
		plan.queues.push_back(all[i]);
		if (!my_settings.weights.empty())
			plan.weights.push_back(my_settings.weights[i]);
	}
	// The one that is to be tried alone cannot be claimed now.
	if (!suspects.empty())
		suspects.pop_front();
	if (plan.queues.empty())
		return {};
	plan.size = std::min({my_settings.batch, my_settings.max_in_flight - taken, least_room});
	// A small claim costs as much as a large one: while others are under way, wait until there is room for more.
	if (plan.size < std::min(my_settings.batch, my_settings.max_in_flight) / 4 && plan.size < least_room && taken > 0)
		return {};
	plan.size = std::min(plan.size, most_readable);
	return plan;
}

void
Source::send_claim(ClaimPlan plan)
{
	auto sent = Clock::now();
	Parameters parameters{worker_id, std::to_string(plan.size), interval(my_settings.lease), array_literal(plan.queues),
						  array_or_null(plan.weights)};

	appetite.sent(plan);
	asked += plan.size;
	work->send(std::string("SELECT outbox_id, ") + (plan.unread ? unread_columns : claim_columns) +
				   " FROM outbox.claim($1, $2, $3, $4, '0', $5)",
			   std::move(parameters), [this, plan, sent](Rows rows) {
				   asked -= plan.size;
				   if (!rows.ok() && is_about_a_message(rows.sqlstate()) && !plan.unread)
					   return unreadable(plan, rows, plan.size == 1);
				   if (!rows.ok())
					   return claim_refused(plan, rows);
				   take_claimed(plan, rows, 0, sent);
			   });
}

// Fewer are claimed, until it is one. That one is claimed without its text, to end the attempt: most likely it is the
// same message, and if not, it has lost an attempt and nothing else.
void
Source::unreadable(const ClaimPlan &plan, const Rows &rows, bool alone)
{
	appetite.answered(plan, plan.size);
	most_readable = std::max<size_t>(plan.size / 2, 1);
	if (!alone)
		return;
	unread = true;
	why_unread = {.code = "UNREADABLE", .response_code = rows.sqlstate(), .text = rows.error()};
}

void
Source::accept(Unread claimed, const std::string &queue)
{
	uint64_t number = ++last_number;
	InFlight &one = in_flight[number];

	one.lease = claimed.lease;
	one.lease_end = std::make_shared<LeaseEnd>(one.lease.until);
	one.event_id = claimed.event_id;
	one.queue = queue;
	one.attempt = claimed.attempt;
	end_unsent(number, Verdict::try_again, why_unread);
}

void
Source::take_claimed(const ClaimPlan &plan, const Rows &rows, int first_row, Clock::time_point sent)
{
	int first_column = first_row > 0 ? 5 : 1; // a report's columns come before
	auto count = static_cast<size_t>(rows.count() - first_row);
	const auto now = Clock::now();
	Clock::duration lease{};
	bool late = false;

	appetite.answered(plan, count);
	tried_alone(plan);
	state.last_claim = polled = Clock::now();
	state.claimed += count;
	claimed_again(plan);
	observers.metrics.claimed(my_settings.name, count);
	for (int row = first_row; row < rows.count(); row++)
	{
		if (plan.unread)
			accept(decode_unread(rows, row, sent), plan.queues.size() == 1 ? plan.queues.front() : "");
		else
		{
			Claimed claimed = decode(rows, row, first_column, sent);

			// That of the first row is the longest: the server read its clock again for each.
			lease = std::max(lease, claimed.lease.until - sent);
			late = late || claimed.lease.until <= now;
			accept(std::move(claimed));
		}
	}
	if (!plan.unread)
		fit_to_lease(plan, count, now - sent, late ? std::min(lease, now - sent) : lease);
}

// What takes long to come is claimed in smaller numbers, so that its leases do not run out on the way: two claims,
// which come one after the other, shall take a quarter of a lease.
void
Source::fit_to_lease(const ClaimPlan &plan, size_t count, Clock::duration took, Clock::duration lease)
{
	if (count > 0 && took > lease / 2)
		most_readable = std::max<size_t>(static_cast<size_t>(static_cast<double>(count) * (lease / (8.0 * took))), 1);
	else if (count >= plan.size && took < lease / 8 && most_readable < my_settings.batch)
		most_readable *= 2;
}

// The connection works, so that the first attempt after it is lost comes without a pause.
void
Source::claimed_again(const ClaimPlan &plan)
{
	pause = 0ms;
	unread = false;
	for (const auto &queue : plan.queues)
		unknown_queues.erase(queue);
	if (refusal.empty() || !unknown_queues.empty())
		return;
	log(Level::info, "claims are answered again", {{"source", my_settings.name}});
	if (state.problem == refusal)
		state.problem.clear();
	refusal.clear();
	logged.clear();
}

// One queue that does not exist keeps no other from being served: each is tried alone, and the one that is not there is
// left out for a while.
void
Source::claim_refused(const ClaimPlan &plan, const Rows &rows)
{
	std::string code = rows.sqlstate();

	appetite.answered(plan, plan.size);
	unread = false;
	if (code == "P7004" && plan.queues.size() > 1)
	{
		suspects.assign(plan.queues.begin(), plan.queues.end());
		return;
	}
	if (code == "P7004")
	{
		unknown_queues[plan.queues.front()] = Clock::now() + unknown_queue_pause;
		tried_alone(plan);
	}
	else
		claim_after = Clock::now() + refused_pause;
	refused("could not claim", rows);
	refusal = state.problem = rows.trouble().text;
	// A standby takes nothing: find the primary.
	if (code == "25006")
		useless = true;
}

void
Source::tried_alone(const ClaimPlan &plan)
{
	if (suspects.empty() || plan.queues.size() != 1 || plan.queues.front() != suspects.front())
		return;
	suspects.pop_front();
	appetite.notified(); // the others have not been asked
}

bool
Source::kept_in_order(const Message &message) const
{
	if (!message.sequence_id || !message.partition_key)
		return false;
	auto found = orderings.find(message.queue);
	return found == orderings.end() || found->second == "fifo";
}

void
Source::accept(Claimed claimed)
{
	uint64_t number = ++last_number;
	const Message &message = claimed.delivery->message;
	InFlight &one = in_flight[number];

	one.lease = claimed.lease;
	one.lease_end = std::make_shared<LeaseEnd>(one.lease.until);
	one.event_id = claimed.event_id;
	one.event_type = message.event_type;
	one.queue = message.queue;
	one.attempt = message.attempt;
	const Route *route = routing->routes->of(message);
	auto found = route != nullptr ? routing->outlets.find(route->sink) : routing->outlets.end();
	if (kept_in_order(message))
		one.chain = message.queue + '\0' + *message.partition_key;
	one.parcel = Parcel{.number = number,
						.results = inbox,
						.routes = routing->routes,
						.route = route,
						.delivery = std::move(claimed.delivery),
						.lease_end = one.lease_end};
	if (found != routing->outlets.end())
		one.outlet = found->second;
	if (stop_at) // it was claimed before
		return release(number, 0ms);
	if (!one.chain.empty())
	{
		auto &chain = chains[one.chain];

		chain.push_back(number);
		if (chain.front() != number)
			return;
	}
	submit(one);
}

void
Source::submit(InFlight &one)
{
	if (!must_be_lifted(one))
		return hand_over(one);
	one.phase = Phase::lifting;
	unlifted.push_back(one.parcel->number);
}

void
Source::hand_over(InFlight &one)
{
	if (!one.outlet)
		return end_unsent(one.parcel->number, Verdict::refused,
						  {.code = "NO_ROUTE_CONFIGURED", .text = "no route matches the message"});

	one.phase = Phase::open;
	open++;
	one.outlet->submit(std::move(*one.parcel));
	one.parcel.reset();
	filled.add(one.outlet);
}

// As if it had been handed over, and this were the answer.
void
Source::end_unsent(uint64_t number, Verdict verdict, Answer answer)
{
	InFlight &one = in_flight.at(number);
	auto now = Clock::now();

	one.parcel.reset();
	one.phase = Phase::open;
	open++;
	on(Result{.number = number, .verdict = verdict, .answer = std::move(answer), .handed = now, .answered = now});
}

// The first of a chain has ended. If it was accepted, the next one is handed over; else those behind it must not
// overtake it.
void
Source::chain_goes_on(const std::string &name, uint64_t number, bool accepted)
{
	auto found = chains.find(name);

	if (found == chains.end())
		return;
	std::erase(found->second, number);
	if (!accepted)
	{
		auto rest = std::move(found->second);

		chains.erase(found);
		for (uint64_t behind : rest)
			release(behind, 0ms);
		return;
	}
	if (found->second.empty())
		chains.erase(found);
	else if (auto next = in_flight.find(found->second.front()); next != in_flight.end() && next->second.parcel)
		submit(next->second);
}

} // namespace relay
