// Which messages are published with care, so that one that the broker does not stand harms no other.
//
// A broker that does not like a message closes the channel, or the connection, and with it go the confirms of all
// others. So a message of which that must be feared is published on a channel on which it is alone, and is to blame
// if that channel is closed:
// - the first ones to each exchange, until the exchange has taken one: it may not exist, or not be open to this user;
// - those to an address that was refused, until it takes one;
// - each that was open when a channel or connection was closed for a reason that is not known, until it was answered;
// - those as large as one that was refused.
// Guarantees: a message that is not to blame is hit at most once. Nothing here grows without bounds.
#pragma once

#include "sinks/rabbitmq_connection.h"

#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

namespace relay::rabbitmq {

enum class Care {
	none,
	channel,    // alone on its channel
	connection, // alone on the connection
};

class Doubts {
public:
	using Clock = std::chrono::steady_clock;

	[[nodiscard]] Care care(const Delivery &delivery, size_t size) const;
	// An address that was refused a moment ago is not tried again: why it was, or nullptr.
	[[nodiscard]] const Failure *refused(const Delivery &delivery, Clock::time_point now);

	// Whether there is a message that must be alone on its connection.
	[[nodiscard]] bool about_connections() const { return for_connection != 0; }

	void suspect(const Delivery &delivery, Care care);
	// It is to blame.
	void blame(const Delivery &delivery, size_t size, int reply_code, const Failure &failure, Clock::time_point now);
	// The broker has answered: accepted, returned or refused it, and closed nothing.
	void clear(const Delivery &delivery, size_t size);
	// A channel was closed by the broker, or there is a new connection: exchanges may be gone.
	void forget_exchanges() { exchanges.clear(); }

private:
	void release(const std::string &name);

	struct Refusal {
		Failure failure;
		Clock::time_point until;
	};
	std::set<std::string, std::less<>> exchanges; // that take messages
	std::map<std::string, Refusal> addresses;     // that were refused
	std::unordered_map<std::string, Care> suspects;
	std::deque<std::string> suspects_by_age;
	size_t for_connection = 0; // of the suspects
	size_t refused_size = std::numeric_limits<size_t>::max();
};

} // namespace relay::rabbitmq
