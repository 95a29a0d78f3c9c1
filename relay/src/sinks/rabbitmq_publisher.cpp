// Channels, tags, and what the broker says of them.
#include "sinks/rabbitmq_publisher.h"

#include "sinks/rabbitmq_codes.h"

#include <algorithm>

#include "sinks/rabbitmq_library.h"

namespace relay::rabbitmq {

namespace {

constexpr int publishes_between_reads = 64;

// Closings that no message is the reason of.
bool
about_the_connection(int reply_code)
{
	return reply_code == AMQP_CONNECTION_FORCED || reply_code == AMQP_REPLY_SUCCESS ||
		   reply_code == AMQP_INVALID_PATH || reply_code == AMQP_NOT_ALLOWED || reply_code == AMQP_RESOURCE_ERROR;
}

bool
agrees(const Returned &back, const char *header, const std::string &value)
{
	auto found = back.headers.find(header);
	return found == back.headers.end() || found->second == value;
}

bool
is(const Returned &back, const Delivery &delivery)
{
	return back.message_id == delivery.message.event_id && back.exchange == delivery.to.exchange &&
		   back.routing_key == delivery.to.topic && agrees(back, "outbox_id", delivery.message.outbox_id) &&
		   agrees(back, "attempt", std::to_string(delivery.message.attempt));
}

} // namespace

Publisher::Publisher(const Settings &settings, Doubts &doubts, Listener listener)
	: settings(settings), doubts(doubts), listener(std::move(listener))
{
}

std::optional<Failure>
Publisher::begin(std::unique_ptr<Connection> connection)
{
	my_connection = std::move(connection);
	doubts.forget_exchanges();
	return open_channels();
}

std::optional<Failure>
Publisher::open_channels()
{
	for (amqp_channel_t number = main_channel; number < channels.size(); number++)
	{
		if (channels[number].state != Channel::closed)
			continue;
		channels[number] = Channel{.state = Channel::opening};
		if (auto failure = my_connection->open_channel(number))
			return failure;
	}
	return {};
}

std::optional<Failure>
Publisher::read()
{
	auto failure = my_connection->read(*this);
	return failure ? failure : std::exchange(problem, {});
}

std::optional<Failure>
Publisher::publish(std::deque<Waiting> &waiting)
{
	auto now = Clock::now();
	stopped_by_socket = false;
	if (is_blocked)
		return {};
	if (auto failure = open_channels())
		return failure;
	std::erase_if(waiting_for_channel, [&](Waiting &one) { return publish_with_care(one, now) != Went::not_now; });
	for (int sent = 0; !waiting.empty() && !problem && !is_blocked;)
	{
		Went went = publish_one(waiting.front(), now);
		if (went == Went::not_now)
			break;
		waiting.pop_front();
		if (went == Went::sent && ++sent % publishes_between_reads == 0)
			if (auto failure = read())
				return failure;
	}
	return std::exchange(problem, {});
}

bool
Publisher::answered_before(Waiting &waiting, Clock::time_point now)
{
	const Delivery &delivery = *waiting.delivery;
	if (now >= waiting.deadline)
		answer(delivery, {"TIMEOUT", {}, "it waited for the broker"});
	else if (const Failure *failure = doubts.refused(delivery, now))
		answer(delivery, *failure);
	else if (!my_connection->fits(delivery))
		answer(delivery, {code_of(AMQP_STATUS_TABLE_TOO_BIG), {}, "the headers do not fit into a frame"});
	else
		return false;
	return true;
}

// With the first of those that wait; those that need care step aside for a channel of their own.
Publisher::Went
Publisher::publish_one(Waiting &waiting, Clock::time_point now)
{
	if (answered_before(waiting, now))
		return Went::answered;
	if (doubts.care(*waiting.delivery, waiting.delivery->body.size()) != Care::none)
	{
		if (Went went = publish_with_care(waiting, now); went != Went::not_now)
			return went;
		waiting_for_channel.push_back(std::move(waiting));
		return Went::aside;
	}
	if (channels[main_channel].state != Channel::ready || alone_on_connection())
		return Went::not_now;
	stopped_by_socket = !my_connection->writable();
	if (stopped_by_socket)
		return Went::not_now;
	send(main_channel, waiting, Care::none);
	return Went::sent;
}

Publisher::Went
Publisher::publish_with_care(Waiting &waiting, Clock::time_point now)
{
	if (problem || is_blocked)
		return Went::not_now;
	if (answered_before(waiting, now))
		return Went::answered;
	Care care = doubts.care(*waiting.delivery, waiting.delivery->body.size());
	if (care == Care::connection ? open_messages() != 0 : alone_on_connection())
		return Went::not_now;
	auto channel = channel_for(care);
	if (channel == 0)
		return Went::not_now;
	stopped_by_socket = !my_connection->writable();
	if (stopped_by_socket)
		return Went::not_now;
	send(channel, waiting, care);
	return Went::sent;
}

// 0: none is free.
amqp_channel_t
Publisher::channel_for(Care care) const
{
	if (care == Care::none) // the doubt is gone
		return channels[main_channel].state == Channel::ready ? main_channel : 0;
	for (amqp_channel_t number = main_channel + 1; number < channels.size(); number++)
		if (channels[number].state == Channel::ready && channels[number].open.empty())
			return number;
	return 0;
}

void
Publisher::send(amqp_channel_t number, Waiting &waiting, Care care)
{
	Channel &channel = channels[number];
	Open &open = channel.open[channel.next_tag++];
	open = {.delivery = std::move(waiting.delivery), .size = 0, .deadline = waiting.deadline, .care = care};
	open.size = open.delivery->body.size();
	problem = my_connection->publish(number, settings, *open.delivery);
	open.delivery->body = {};
}

// Whether a message that must be alone is open, or is the next to go.
bool
Publisher::alone_on_connection() const
{
	if (!doubts.about_connections())
		return false;
	auto alone = [](const auto &entry) { return entry.second.care == Care::connection; };
	for (const Channel &channel : channels)
		if (&channel != &channels[main_channel] && std::ranges::any_of(channel.open, alone))
			return true;
	return std::ranges::any_of(waiting_for_channel, [&](const Waiting &one) {
		return one.delivery && doubts.care(*one.delivery, one.delivery->body.size()) == Care::connection;
	});
}

size_t
Publisher::open_messages() const
{
	size_t all = 0;
	for (const Channel &channel : channels)
		all += channel.open.size();
	return all;
}

std::optional<Failure>
Publisher::expire(std::deque<Waiting> &waiting, Clock::time_point now)
{
	auto over = [&](Waiting &one) { return answered_before(one, now); };
	std::erase_if(waiting, over);
	std::erase_if(waiting_for_channel, over);
	for (amqp_channel_t number = main_channel; number < channels.size(); number++)
	{
		Channel &channel = channels[number];
		size_t expired = std::erase_if(channel.open, [&](auto &entry) {
			if (now < entry.second.deadline)
				return false;
			answer(*entry.second.delivery, {"TIMEOUT", {}, "the broker has not confirmed it"});
			return true;
		});
		// What comes later of it must not be taken for what another message has done.
		channel.gave_up |= expired != 0;
		if (expired == 0 || number == main_channel || channel.state != Channel::ready || is_blocked)
			continue;
		channel.state = Channel::closing;
		if (auto failure = my_connection->close_channel(number))
			return failure;
	}
	return {};
}

void
Publisher::lose(const Failure &failure)
{
	for (Channel &channel : channels)
	{
		for (auto &[tag, open] : channel.open)
			answer(*open.delivery, failure);
		channel = {};
	}
	problem.reset();
	stopped_by_socket = false;
	if (std::exchange(is_blocked, false))
		listener.blocked(false, {});
}

void
Publisher::opened(amqp_channel_t number)
{
	if (number >= channels.size())
		return;
	if (channels[number].state == Channel::opening)
		channels[number].state = Channel::ready;
	if (number == main_channel)
		listener.alive();
}

void
Publisher::confirmed(amqp_channel_t number, uint64_t tag, bool multiple, bool accepted)
{
	if (number >= channels.size())
		return;
	auto &open = channels[number].open;
	auto first = multiple ? open.begin() : open.find(tag);
	auto last = multiple && tag == 0 ? open.end() : open.upper_bound(tag); // 0: all
	if (first == open.end())
		return;
	for (auto entry = first; entry != last; ++entry)
		settle(number, entry->first, entry->second, accepted);
	open.erase(first, last);
}

void
Publisher::settle(amqp_channel_t number, uint64_t tag, Open &open, bool accepted)
{
	doubts.clear(*open.delivery, open.size);
	if (!accepted)
		return answer(*open.delivery, {"AMQP_NACK", {}, "the broker could not take charge of the message"});
	Answer yes{.accepted = true, .code = {}, .response_code = {}, .text = {}, .reference = {}, .retry_after = {}};
	yes.reference = std::to_string(number) + "/" + std::to_string(tag);
	listener.answer(open.delivery->ticket, std::move(yes));
}

void
Publisher::returned(amqp_channel_t number, const Returned &back)
{
	if (number >= channels.size())
		return;
	auto &open = channels[number].open;
	auto found = std::ranges::find_if(open, [&](const auto &entry) { return is(back, *entry.second.delivery); });
	if (found == open.end()) // it was given up
		return;
	doubts.clear(*found->second.delivery, found->second.size);
	answer(*found->second.delivery, {code_of(back.reply_code), std::to_string(back.reply_code),
									 back.text + ": no queue is bound in exchange \"" + back.exchange +
										 "\" for routing key \"" + back.routing_key + "\""});
	open.erase(found);
}

void
Publisher::blame(Open &open, int reply_code, const std::string &text)
{
	Failure failure{code_of(reply_code), std::to_string(reply_code), text};
	doubts.blame(*open.delivery, open.size, reply_code, failure, Clock::now());
	answer(*open.delivery, failure);
}

void
Publisher::channel_closed(amqp_channel_t number, int reply_code, const std::string &text)
{
	if (number >= channels.size())
		return;
	Channel &channel = channels[number];
	if (channel.open.size() == 1 && !channel.gave_up)
		blame(channel.open.begin()->second, reply_code, text);
	else
	{
		Failure failure{"AMQP_CHANNEL_CLOSED", std::to_string(reply_code), text};
		listener.closed("channel", failure);
		for (auto &[tag, open] : channel.open)
		{
			doubts.suspect(*open.delivery, Care::channel);
			answer(*open.delivery, failure);
		}
	}
	if (number == main_channel)
		doubts.forget_exchanges();
	channel = {};
}

void
Publisher::close_done(amqp_channel_t number)
{
	if (number < channels.size())
		channels[number] = {};
}

void
Publisher::connection_closed(int reply_code, const std::string &text)
{
	listener.closed("connection", {"AMQP_CONNECTION_CLOSED", std::to_string(reply_code), text});
	if (about_the_connection(reply_code))
		return;
	bool alone = open_messages() == 1 && std::ranges::none_of(channels, &Channel::gave_up);
	for (Channel &channel : channels)
	{
		for (auto &[tag, open] : channel.open)
		{
			doubts.suspect(*open.delivery, Care::connection);
			if (alone)
				answer(*open.delivery, {code_of(reply_code), std::to_string(reply_code), text});
		}
		if (alone)
			channel.open.clear();
	}
}

void
Publisher::blocked(bool blocked, const std::string &reason)
{
	if (std::exchange(is_blocked, blocked) != blocked)
		listener.blocked(blocked, reason);
}

void
Publisher::answer(const Delivery &delivery, const Failure &failure)
{
	listener.answer(delivery.ticket, {.accepted = false,
									  .code = failure.code,
									  .response_code = failure.response_code,
									  .text = failure.text,
									  .reference = {},
									  .retry_after = {}});
}

} // namespace relay::rabbitmq
