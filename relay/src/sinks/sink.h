// What delivers: the one interface that all sinks have.
//
// Guarantees: a sink answers each delivery exactly once, on whichever thread it likes, also within deliver().
// It neither classifies nor retries beyond what its protocol does by itself, keeps no state that a crash could
// lose, and never blocks its caller: what takes time happens on threads of its own, or without blocking in wait(). It
// gives up a delivery by itself after Setting::timeout; the outlet (flow/outlet.h), which counts from the hand-over,
// does not wait for it, and ignores what comes later.
#pragma once

#include "core/answer.h"
#include "core/delivery.h"
#include "core/taxonomy.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

namespace relay {

struct Answered {
	uint64_t ticket;
	Answer answer;
};

// Receives answers; any thread may call it.
class Answers {
public:
	// Those that came together wake the receiver once.
	virtual void answer(std::vector<Answered> answered) = 0;
	void answer(uint64_t ticket, Answer one)
	{
		std::vector<Answered> answered;

		answered.push_back({ticket, std::move(one)});
		answer(std::move(answered));
	}
	// The sink cannot take more for now (connection.blocked), or can again.
	virtual void blocked(bool blocked) = 0;

protected:
	~Answers() = default;
};

// The destinations of a route, as the configuration names them.
struct Target {
	struct Part {
		std::string text; // the name, or the template that makes it
		bool fixed;       // false: it depends on the message
	};
	Part topic, exchange; // an exchange that is empty: the sink's own
};

// What --check can see of a target without a message.
struct Finding {
	enum class State { there, missing, unseen };

	std::string what; // topic "orders" ...
	State state;
	std::string text; // why it is not seen, or what to do
};

class Sink {
public:
	virtual ~Sink() = default; // ends its threads; gives no answer any more

	// Before the first delivery; `answers` outlives the sink. It connects now or with the first delivery, and again
	// by itself. A sink that is away makes no error here.
	virtual void start(Answers &answers) = 0;

	// Takes them in this order. Calls come one at a time, and no more deliveries are open than Settings::max_in_flight.
	virtual void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) = 0;

	// Returns when the descriptor can be read, at the latest after that time, perhaps earlier. The thread that delivers
	// waits here, so a sink whose library is one of events needs no thread of its own, and no thread to be woken.
	virtual void wait(int descriptor, std::chrono::milliseconds longest)
	{
		pollfd readable{descriptor, POLLIN, 0};
		::poll(&readable, 1, static_cast<int>(longest.count()));
	}

	// Whether the sink can be reached now: connected, logged in, ready to take. Answers once, on any thread,
	// within Settings::timeout; accepted means yes. Sends no message.
	virtual void probe(const std::string &endpoint, std::function<void(Answer)> done) = 0;

	// For --check: whether the topic, queue, exchange or stream of a target exists. Called once the sink can be
	// reached. May block for a few times SinkSettings::timeout. Sends no message, and creates nothing.
	[[nodiscard]] virtual std::vector<Finding> look_for(const Target &) { return {}; }

	// What has a breaker and a limit of concurrency of its own: of HTTP scheme://host:port, else the sink as a whole.
	[[nodiscard]] virtual std::string endpoint(const Delivery &) const { return {}; }

	// Why the destination is not one of this sink (an illegal topic name ...), or nothing.
	[[nodiscard]] virtual Text objection(const Delivery &) const { return {}; }
};

// What all sinks have in the configuration.
struct SinkSettings {
	std::string name, type;
	size_t max_in_flight = 1000;               // deliveries in its hands
	size_t max_per_endpoint = 0;               // of these to one endpoint; 0 = no limit of its own
	std::chrono::milliseconds timeout{30'000}; // from the hand-over
};

} // namespace relay
