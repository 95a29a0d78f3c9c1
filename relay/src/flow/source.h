// One database: claims its messages, sends them on their way, and records what came of it.
//
// Guarantees: a message that was claimed is in flight until its outcome is recorded, its lease is given back, or its
// lease is lost. At most max_in_flight are. Outcomes that cannot be recorded because the database is away are kept, and
// reported when it is back. Leases are renewed at half of their time; what has lost its lease is not handed over any
// more. Of a key of an ordered queue one message is under way at a time, and if it is not accepted, those behind it are
// given back untried. A notification, and the poll at the latest, makes it claim; after each reconnect it listens first
// and claims then.
//
// Shape: one thread with two connections, of which one listens and one works, and a mailbox for results. Nothing in it
// waits but poll(). source.cpp has the loop and the connections, claiming.cpp what comes in, lifting.cpp
// what is done to older payloads, recording.cpp what goes back.
#pragma once

#include "db/connection.h"
#include "flow/claims.h"
#include "flow/inbox.h"
#include "flow/reports.h"

#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>

namespace relay {

class Source final {
public:
	Source(SourceSettings settings, std::string worker_id, std::shared_ptr<const Routing> routing, Observers observers);
	~Source(); // stops at once, if it has not ended

	[[nodiscard]] const SourceSettings &settings() const { return my_settings; }
	void reroute(std::shared_ptr<const Routing> routing);
	// Claims no more, gives back what was not handed over, and ends when the rest is recorded, at the latest after
	// `grace`.
	void stop(std::chrono::milliseconds grace);
	// It was replaced by another one of its name: nothing is seen of it any more.
	void hide();
	[[nodiscard]] bool ended() const { return has_ended; }

private:
	enum class Phase {
		waiting, // for those before it in its chain
		lifting, // to the version of the payload that its route wants
		open,    // in the hands of an outlet
		reporting,
		releasing,
	};
	// A message between its claim and the end of its lease.
	struct InFlight {
		Lease lease;
		Uuid event_id{};
		std::string event_type, queue;
		std::string chain; // empty: nothing to be kept in order
		int attempt = 1;
		std::shared_ptr<Outlet> outlet; // nullptr: no route
		std::shared_ptr<LeaseEnd> lease_end;
		std::optional<Parcel> parcel; // while it waits
		Phase phase = Phase::waiting;
		bool lost = false; // its lease: the outcome is only logged

		[[nodiscard]] std::string sink() const { return outlet ? outlet->name() : ""; }
	};

	void run();
	void wait(Clock::time_point now);
	[[nodiscard]] Clock::time_point next(Clock::time_point now) const;
	void take_inbox();
	void reroute_now(std::shared_ptr<const Routing> routing);

	void connect(Clock::time_point now);
	void lost_connection(Clock::time_point now);
	void refused(std::string_view what, const Rows &rows);
	bool is_news(std::string_view what, const std::string &text);
	void set_up();
	void listen();
	void read_rights();
	void read_orderings();
	void read_status();
	void read_metrics();

	// claiming.cpp
	std::optional<ClaimPlan> plan(Clock::time_point now);
	[[nodiscard]] std::vector<std::string> queues() const;
	[[nodiscard]] size_t room_of(const std::string &queue) const;
	void send_claim(ClaimPlan plan);
	void take_claimed(const ClaimPlan &plan, const Rows &rows, int first_row, Clock::time_point sent);
	void tried_alone(const ClaimPlan &plan);
	void claimed_again(const ClaimPlan &plan);
	void fit_to_lease(const ClaimPlan &plan, size_t count, Clock::duration took, Clock::duration lease);
	void claim_refused(const ClaimPlan &plan, const Rows &rows);
	void unreadable(const ClaimPlan &plan, const Rows &rows, bool alone);
	void accept(Claimed claimed);
	void accept(Unread claimed, const std::string &queue);
	void submit(InFlight &message);
	void hand_over(InFlight &message);
	void end_unsent(uint64_t number, Verdict verdict, Answer answer);
	void chain_goes_on(const std::string &chain, uint64_t number, bool accepted);
	[[nodiscard]] bool kept_in_order(const Message &message) const;

	// lifting.cpp
	[[nodiscard]] bool must_be_lifted(const InFlight &message) const;
	void send_lifts();
	void send_lift(std::vector<uint64_t> numbers);
	void lifted(const std::vector<uint64_t> &numbers, const Rows &rows);
	void lift_failed(uint64_t number, const Rows &rows);
	InFlight *being_lifted(uint64_t number);

	// recording.cpp
	void on(Result result);
	void send_report(std::optional<ClaimPlan> plan);
	void report_refused(uint64_t report, const std::optional<ClaimPlan> &plan, const Rows &rows);
	void take_report(uint64_t report, const Rows &rows);
	void recorded(const Outcome &outcome, const Rows &rows, int row);
	void send_releases();
	void released(const std::vector<uint64_t> &numbers, const Rows &rows);
	void renew(Clock::time_point before);
	void send_renewals(std::vector<uint64_t> numbers, const std::vector<Uuid> &ids, const std::vector<Uuid> &tokens);
	void renewed(const std::vector<uint64_t> &numbers, const Rows &rows, Clock::time_point sent);
	void lose(uint64_t number);
	void release(uint64_t number, std::chrono::milliseconds delay);
	void forget(uint64_t number);
	void log_outcome(const InFlight &message, const Result &result) const;

	void begin_stop(Clock::time_point until);
	void give_up();
	[[nodiscard]] bool done(Clock::time_point now) const;
	void show(Clock::time_point now);
	void show_metrics();
	[[nodiscard]] bool working() const { return work && !work->broken() && is_connected; }

	const SourceSettings my_settings;
	const std::string worker_id;
	Observers observers;
	std::shared_ptr<Inbox> inbox;
	std::vector<Inbox::Event> events; // taken from it
	std::shared_ptr<const Routing> routing;

	std::unique_ptr<Connection> work, listener;
	bool is_connected = false, is_listening = false, status_sent = false, metrics_sent = false;
	size_t renewing = 0;  // statements under way
	bool useless = false; // the connections stand, but the server does not let them work: connect again
	Clock::time_point connect_at{}, ticked{}, status_at{}, metrics_at{}, orderings_at{}, polled{};
	std::chrono::milliseconds pause{0};

	Appetite appetite;
	std::map<std::string, Clock::time_point> unknown_queues; // and when to try again
	std::deque<std::string> suspects;                        // queues of which one is not there
	bool keys_are_free = false;                              // by what is reported next
	size_t most_readable = SIZE_MAX;                         // in a claim, since a larger one failed or took too long
	bool unread = false;                                     // the next claim is without the text of the message
	Answer why_unread;
	Clock::time_point claim_after{};
	std::string refusal; // why the last claim failed, as the status page shows it
	struct Logged {
		std::string text;
		Clock::time_point again{};
	};
	std::map<std::string, Logged, std::less<>> logged; // what went wrong, and when it is logged again
	Reports reports;
	Unflushed<Outlet> filled; // in this turn of the loop

	std::unordered_map<uint64_t, InFlight> in_flight;
	std::unordered_map<std::string, std::deque<uint64_t>> chains;
	std::set<std::string> readable;                                      // of queues and status, what the role may read
	std::map<std::string, std::string> orderings;                        // of the queues, if the role may read them
	std::map<std::chrono::milliseconds, std::vector<uint64_t>> releases; // by delay
	std::vector<uint64_t> unlifted;                                      // whose turn has come
	std::vector<uint64_t> unreleased;                                    // at the next tick
	size_t open = 0;                                                     // in the hands of outlets
	size_t asked = 0;                                                    // by claims under way
	uint64_t last_number = 0;
	SourceState state;

	std::optional<Clock::time_point> stop_at;
	bool given_up = false;
	std::atomic<bool> has_ended{false}, hidden{false};
	std::thread thread;
};

} // namespace relay
