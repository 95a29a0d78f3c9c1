// The way to one sink: what waits for it, what is in its hands, and whether it is there at all.
//
// Guarantees: each parcel comes back as exactly one result. At most max_in_flight deliveries are in the sink's hands,
// of these max_per_endpoint to one endpoint; endpoints take turns. A delivery that is not answered in `timeout` is
// TIMEOUT, whatever the sink says later. The class of a failure follows from its code. A failure that is the sink's
// fault opens the breaker of that endpoint, and what waits for it comes back untried. What has lost its lease is not
// handed over.
//
// Shape: one thread owns all of it and takes what happens from a mailbox, so there are no locks and no order of events
// that was not thought of. Only room() and end() are read from outside. outlet.cpp has the loop and the way to the
// sink, answering.cpp what comes back.
#pragma once

#include "config/config.h"
#include "core/breaker.h"
#include "flow/mailbox.h"
#include "flow/parcel.h"
#include "seen/board.h"
#include "seen/metrics.h"
#include "seen/tracing.h"

#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <variant>

namespace relay {

// What all parts report to.
struct Observers {
	Metrics &metrics;
	Board &board;
	Tracer &tracer;
};

class Outlet final : public Answers {
public:
	// `fixed`: all routes to it have one address, so that there are no other endpoints than those that are known.
	Outlet(const SinkConfig &config, bool fixed, Observers observers);
	~Outlet(); // waits for the end
	// Asks it to end, if that was not done; true once it has. What is still there comes back: what was handed over as
	// RETRYABLE, the rest untried. A sink may take seconds for it.
	bool end();

	[[nodiscard]] const std::string &name() const { return settings.name; }
	// Then flush().
	void submit(Parcel parcel);
	void flush();
	// What has not been handed over comes back untried, and nothing if it was.
	void withdraw(const std::shared_ptr<Results> &results, uint64_t number);
	void withdraw_all(const std::shared_ptr<Results> &results);

	// It is no longer wanted: what has not been handed over comes back untried, also what is submitted later. If it was
	// replaced by another one of its name, nothing is seen of it any more.
	void retire(bool replaced);

	// How many more it can use: 0 while it is away or nearly full, 1 when it asks for one to try with.
	[[nodiscard]] size_t room() const { return my_room.load(std::memory_order_relaxed); }
	// Is told when room() comes back from 0.
	void watch(std::weak_ptr<Results> watcher);
	void set_fixed(bool fixed);

	void answer(std::vector<Answered> answered) override;
	void blocked(bool blocked) override;

private:
	struct Waiting {
		std::unique_ptr<Delivery> delivery;
		uint64_t number;
		std::shared_ptr<Results> results;
		std::shared_ptr<const LeaseEnd> lease_end;
	};
	struct Endpoint {
		std::string name;
		std::deque<Waiting> waiting;
		size_t in_hand = 0;
		Breaker breaker;
		Clock::time_point opened{}, last_answer{}, probe_until{};
	};
	struct Open { // in the sink's hands
		uint64_t number;
		std::shared_ptr<Results> results;
		Endpoint *endpoint;
		Clock::time_point handed;
		std::chrono::system_clock::time_point handed_wall;
		std::chrono::sys_time<std::chrono::microseconds> created_at;
		std::string event_type, trace_id;
		std::unique_ptr<Span> span; // if one is made
	};
	struct Blocked {
		bool blocked;
	};
	struct Probed {
		std::string endpoint;
		Answer answer;
	};
	struct Withdraw {
		std::shared_ptr<Results> results;
		std::optional<uint64_t> number; // nothing: all
	};
	struct Watch {
		std::weak_ptr<Results> watcher;
	};
	struct Fixed {
		bool fixed;
	};
	struct Retire {};
	struct Stop {};
	using Event = std::variant<Parcel, Answered, Blocked, Probed, Withdraw, Watch, Fixed, Retire, Stop>;

	void run();
	void on(Parcel parcel);
	void on(Answered answered);
	void on(Blocked blocked);
	void on(Probed probed);
	void on(Withdraw withdraw);
	void on(Watch watch);
	void on(Fixed change) { fixed = change.fixed; }
	void on(Retire);
	void on(Stop) { stopping = true; }

	Endpoint &endpoint_of(const Delivery &delivery);
	void hand_over(Clock::time_point now);
	bool hand_next(Endpoint &endpoint, Clock::time_point now, std::vector<std::unique_ptr<Delivery>> &batch);
	void time_out(Clock::time_point now);
	void finish(Open open, Answer answer);
	Fault count_failure(const Open &open, Answer &answer);
	void away(Endpoint &endpoint, Clock::time_point handed, Clock::time_point now);
	void give_back(Endpoint &endpoint, std::chrono::milliseconds delay);
	void probe(Clock::time_point now);
	void tell(const std::shared_ptr<Results> &results, Result result);
	void untried(const Waiting &waiting, std::chrono::milliseconds delay);
	std::chrono::milliseconds delay_of(const Endpoint &endpoint) const;
	void return_all();
	void update_room();
	void show(Clock::time_point now);
	void forget_endpoints();
	void trace(Delivery &delivery, Open &open) const;
	[[nodiscard]] std::chrono::milliseconds until_next(Clock::time_point now) const;
	double chance() { return std::uniform_real_distribution<>(0, 1)(random); }

	const SinkSettings settings;
	const Binding binding;
	const Taxonomy taxonomy;
	bool fixed;
	Observers observers;
	std::mt19937_64 random{std::random_device{}()};

	std::shared_ptr<Mailbox<Event>> mailbox = std::make_shared<Mailbox<Event>>(); // a late probe may outlive the outlet
	std::map<std::string, Endpoint> endpoints;
	std::deque<Endpoint *> turns; // those with something waiting
	std::unordered_map<uint64_t, Open> open;
	std::deque<std::pair<Clock::time_point, uint64_t>> deadlines;
	std::vector<std::weak_ptr<Results>> watchers;
	Unflushed<Results> told; // in this turn of the loop
	uint64_t last_ticket = 0;
	size_t waiting = 0;
	bool is_blocked = false, stopping = false, retired = false;
	Clock::time_point shown{}, counted{};
	SinkState state;
	std::atomic<size_t> my_room{0};
	bool asked_to_end = false; // the owner's
	std::atomic<bool> has_ended{false}, hidden{false};

	std::unique_ptr<Sink> sink;
	std::thread thread;
};

} // namespace relay
