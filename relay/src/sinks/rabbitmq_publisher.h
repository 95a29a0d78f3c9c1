// Publishes on one connection and tells what became of each message.
//
// Guarantees: each delivery that publish() takes is answered once, at the latest by lose(). A confirm counts for the
// message of its channel and tag. A returned message, which comes without a tag, is found by its message_id and, since
// two open messages may share that, by the headers outbox_id and attempt.
//
// Shape: channel 1 carries all messages of which nothing is feared; those that need care (rabbitmq_doubts.h) go alone,
// each on one of the other channels.
#pragma once

#include "core/answer.h"
#include "sinks/rabbitmq_connection.h"
#include "sinks/rabbitmq_doubts.h"
#include "sinks/sink.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>

namespace relay::rabbitmq {

using Clock = std::chrono::steady_clock;

struct Waiting {
	std::unique_ptr<Delivery> delivery;
	Clock::time_point deadline;
};

class Publisher final : private Events {
public:
	struct Listener {
		std::function<void(uint64_t ticket, Answer answer)> answer;
		std::function<void(bool blocked, const std::string &reason)> blocked;
		std::function<void()> alive; // the broker has answered: after connecting, and after each ask()
		std::function<void(const std::string &what, const Failure &failure)> closed; // by the broker; for the log
	};

	Publisher(const Settings &settings, Doubts &doubts, Listener listener);

	// Takes over a new connection.
	std::optional<Failure> begin(std::unique_ptr<Connection> connection);
	[[nodiscard]] Connection *connection() const { return my_connection.get(); }

	// Reads what has come. A failure means that the connection is to be lost.
	std::optional<Failure> read();
	// Publishes what may go, and leaves the rest.
	std::optional<Failure> publish(std::deque<Waiting> &waiting);
	std::optional<Failure> ask() { return my_connection->ask(main_channel); }
	// Answers what is open or waits, and is older than its deadline.
	std::optional<Failure> expire(std::deque<Waiting> &waiting, Clock::time_point now);
	// The connection is gone: answers what is open. release() follows.
	void lose(const Failure &failure);
	std::unique_ptr<Connection> release() { return std::move(my_connection); }
	// Messages that need care and wait for a channel; they are not on the wire.
	std::deque<Waiting> &careful() { return waiting_for_channel; }
	[[nodiscard]] bool wants_to_write() const { return stopped_by_socket; }

private:
	static constexpr amqp_channel_t main_channel = 1, channels_for_care = 8;

	struct Open {
		std::unique_ptr<Delivery> delivery; // without its body
		size_t size = 0;
		Clock::time_point deadline;
		Care care = Care::none;
	};
	struct Channel {
		enum State { closed, opening, ready, closing } state = closed;
		bool gave_up = false; // on a message that the broker may still be at
		uint64_t next_tag = 1;
		std::map<uint64_t, Open> open{};
	};

	void opened(amqp_channel_t channel) override;
	void confirmed(amqp_channel_t channel, uint64_t tag, bool multiple, bool accepted) override;
	void returned(amqp_channel_t channel, const Returned &message) override;
	void channel_closed(amqp_channel_t channel, int reply_code, const std::string &text) override;
	void close_done(amqp_channel_t channel) override;
	void blocked(bool blocked, const std::string &reason) override;
	void connection_closed(int reply_code, const std::string &text) override;

	enum class Went { sent, answered, aside, not_now };
	Went publish_one(Waiting &waiting, Clock::time_point now);
	Went publish_with_care(Waiting &waiting, Clock::time_point now);
	bool answered_before(Waiting &waiting, Clock::time_point now);
	[[nodiscard]] amqp_channel_t channel_for(Care care) const;
	void send(amqp_channel_t channel, Waiting &waiting, Care care);
	std::optional<Failure> open_channels();
	[[nodiscard]] bool alone_on_connection() const;
	[[nodiscard]] size_t open_messages() const;
	void settle(amqp_channel_t channel, uint64_t tag, Open &open, bool accepted);
	void blame(Open &open, int reply_code, const std::string &text);
	void answer(const Delivery &delivery, const Failure &failure);

	const Settings &settings;
	Doubts &doubts;
	Listener listener;
	std::unique_ptr<Connection> my_connection;
	std::array<Channel, main_channel + channels_for_care + 1> channels; // by number; 0 is the connection's own
	std::deque<Waiting> waiting_for_channel;
	std::optional<Failure> problem; // of a call that has no way to say so
	bool is_blocked = false, stopped_by_socket = false;
};

} // namespace relay::rabbitmq
