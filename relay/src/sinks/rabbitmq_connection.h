// One connection to a RabbitMQ broker: what rabbitmq-c does, with errors as values and frames as events.
//
// Guarantees: after the login nothing but look_for(), which is for --check, waits for an answer of the broker: channels
// are opened, and closed, by methods whose answers come as events. What was read is given out in the order of the wire.
// A message whose headers do not fit into a frame is refused before anything of it is sent, since half a message would
// cost the connection.
#pragma once

#include "core/delivery.h"
#include "core/secret.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinks/rabbitmq_library.h"

namespace relay::rabbitmq {

struct Host {
	std::string name;
	int port = 0;
};

struct Settings {
	std::vector<Host> hosts;
	std::string user = "guest", vhost = "/";
	Secret password;
	bool tls = false, verify = true;
	std::string ca, cert, key; // files of PEM
	std::chrono::milliseconds connect_timeout{5000};
	int heartbeat = 10; // seconds
	std::string exchange;
	bool mandatory = true, persistent = true;
};

struct Failure {
	std::string code, response_code, text;
};

// A message that came back.
struct Returned {
	int reply_code = 0;
	std::string text, exchange, routing_key, message_id;
	std::map<std::string, std::string> headers; // those that are strings
};

// What the broker says.
class Events {
public:
	virtual void opened(amqp_channel_t channel) = 0; // in confirm mode
	virtual void confirmed(amqp_channel_t channel, uint64_t tag, bool multiple, bool accepted) = 0;
	virtual void returned(amqp_channel_t channel, const Returned &message) = 0;
	virtual void channel_closed(amqp_channel_t channel, int reply_code, const std::string &text) = 0;
	virtual void close_done(amqp_channel_t channel) = 0; // of close_channel()
	virtual void blocked(bool blocked, const std::string &reason) = 0;
	virtual void connection_closed(int reply_code, const std::string &text) = 0; // by the broker, with a reason

protected:
	~Events() = default;
};

// Only one thread uses it, but for cut().
class Connection {
public:
	// Connects and logs in, which may take connect_timeout several times; nullptr: it did not succeed.
	static std::unique_ptr<Connection> open(const Settings &settings, const Host &host, Failure &failure);
	~Connection();
	Connection(const Connection &) = delete;
	Connection &operator=(const Connection &) = delete;

	// Each gives what makes the connection useless, or nothing.
	std::optional<Failure> open_channel(amqp_channel_t channel);
	std::optional<Failure> ask(amqp_channel_t channel); // answered by opened(), if the broker is well
	std::optional<Failure> close_channel(amqp_channel_t channel);
	std::optional<Failure> publish(amqp_channel_t channel, const Settings &settings, const Delivery &delivery);
	std::optional<Failure> read(Events &events); // all that is there

	// Whether the broker has it, by a passive declaration. Waits for the answer. After a failure the connection is of
	// no use.
	enum class Kind { exchange, queue };
	std::optional<Failure> look_for(Kind kind, const std::string &name);

	// Frames that a publish has met, and left to read().
	[[nodiscard]] bool has_frames() const;
	// Whether the headers fit into a frame.
	[[nodiscard]] bool fits(const Delivery &delivery) const;
	[[nodiscard]] int socket() const { return amqp_get_sockfd(state); }
	[[nodiscard]] bool writable() const; // a publish does not wait, unless it is large
	// Any thread, while the connection exists: whatever waits for the broker fails.
	void cut();
	// Says goodbye, for at most a second.
	void close();

private:
	Connection() = default;
	std::optional<Failure> connect(const Settings &settings, const Host &host);
	std::optional<Failure> login(const Settings &settings);
	std::optional<Failure> frame(const amqp_frame_t &frame, Events &events);
	std::optional<Failure> method(amqp_channel_t channel, const amqp_method_t &method, Events &events);
	void content(const amqp_frame_t &frame, Events &events);

	amqp_connection_state_t state = nullptr;
	int descriptor = -1; // a duplicate, since the library closes its own when it likes
	struct Incoming {    // a returned message whose content is on its way
		Returned message;
		uint64_t body_left = 0;
	};
	std::map<amqp_channel_t, Incoming> incoming;
};

// Bytes that the header frame of a message takes at most.
size_t header_size(const Delivery &delivery);

} // namespace relay::rabbitmq
