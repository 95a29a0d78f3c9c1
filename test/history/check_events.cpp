// See checks.h: audit events.
//
// What the ledger has, its event has too, exactly once. What only clients were told (leases, renewals, releases,
// refusals) has at least as many events as were told and committed, and no more than may have been: a transaction whose
// end nobody was told may have left one.

#include <algorithm>
#include <functional>

#include "checks.h"

namespace {

bool
is_audited(const Facts &facts, const std::string &id)
{
	auto message = facts.messages.find(id);

	return message != facts.messages.end() && facts.audited.count(message->second.queue) > 0;
}

// ---- against the ledger

// An event, and the attempts that have one.
struct Recorded {
	std::string event;
	std::function<bool(const Facts &, const Attempt &)> is_for;
	bool by_its_worker;
};

bool
is_report(const Attempt &attempt)
{
	return !attempt.lost() && !attempt.cancelled() && !attempt.broken() && !attempt.released();
}

const Recorded in_ledger[] = {
	{"ATTEMPT_COMPLETED",
	 [](const Facts &facts, const Attempt &one) { return is_report(one) && is_audited(facts, one.id); }, true},
	{"LEASE_EXPIRED_REPAIRED",
	 [](const Facts &facts, const Attempt &one) { return one.lost() && is_audited(facts, one.id); }, false},
	{"MESSAGE_CANCELLED", [](const Facts &, const Attempt &one) { return one.cancelled(); }, false},
	{"LEASE_BROKEN", [](const Facts &, const Attempt &one) { return one.broken(); }, false}};

void
check_recorded(const Facts &facts, const Recorded &kind, Violations &found)
{
	std::map<std::pair<std::string, int64_t>, int> missing;

	for (const auto &[id, attempts] : facts.attempts)
		for (const Attempt &attempt : attempts)
			missing[{id, attempt.number}] += kind.is_for(facts, attempt);
	for (const AuditEvent &one : facts.events)
	{
		if (one.event != kind.event)
			continue;
		const Attempt *attempt = facts.attempt_number(one.id, one.number);

		if (--missing[{one.id, one.number}] < 0)
			found.push_back({"events", kind.event + " of no such attempt, or twice", {one.id}});
		else if (kind.by_its_worker && attempt->worker != one.worker)
			found.push_back({"events", kind.event + " names another worker than the ledger", {one.id}});
	}
	for (const auto &[attempt, count] : missing)
		if (count > 0)
			found.push_back({"events", "an attempt without its " + kind.event, {attempt.first}});
}

void
check_replayed(const Facts &facts, Violations &found)
{
	std::map<std::string, int> missing;

	for (const auto &[id, message] : facts.messages)
		missing[id] += !message.replay_of.empty();
	for (const AuditEvent &one : facts.events)
		if (one.event == "MESSAGE_REPLAYED" && --missing[one.replay] < 0)
			found.push_back({"events", "MESSAGE_REPLAYED without the new message", {one.id, one.replay}});
	for (const auto &[id, count] : missing)
		if (count > 0)
			found.push_back({"events", "a replay without its MESSAGE_REPLAYED", {id}});
}

// ---- against what clients were told

// How often something was done with a message by a worker.
struct Bounds {
	int least = 0;
	int most = 0;
	int events = 0;
};

class Told {
public:
	Told(const Facts &of, std::string name) : facts(of), event(std::move(name)) {}

	void add(const std::string &id, const std::string &worker, bool certain, bool possible)
	{
		Bounds &one = bounds[{id, worker}];

		one.least += certain;
		one.most += possible;
	}

	// lost: so many of a worker may have been answered to nobody. It may be of no client's doing, if that is open.
	void check(std::map<std::string, int64_t> lost, const std::function<bool(const std::string &)> &is_open,
			   Violations &found)
	{
		for (const AuditEvent &one : facts.events)
			if (one.event == event)
				bounds[{one.id, one.worker}].events++;
		for (const auto &[key, one] : bounds)
		{
			const auto &[id, worker] = key;

			if (!is_audited(facts, id))
				continue;
			if (one.events < one.least)
				found.push_back({"events", "a client was told more than there is " + event, {id}});
			for (int i = one.most; i < one.events && !is_open(id); i++)
				if (--lost[worker] < 0)
					found.push_back({"events", event + " of what no client has done", {id}});
		}
	}

private:
	const Facts &facts;
	std::string event;
	std::map<std::pair<std::string, std::string>, Bounds> bounds; // by message and worker
};

bool
never_open(const std::string &)
{
	return false;
}

// By worker: leases of claims whose answer was lost.
std::map<std::string, int64_t>
lost_leases(const History &history)
{
	std::map<std::string, int64_t> lost;

	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			if (call.answered == never && transaction.outcome != Outcome::undone)
				lost[call.fields.text("worker")] += call.verb == "enqueue_and_claim" ? 1 : call.fields.number("batch");
	return lost;
}

void
check_claimed(const Facts &facts, const History &history, Violations &found)
{
	Told told(facts, "LEASE_CLAIMED");
	std::set<std::tuple<std::string, std::string, int64_t>> tries;

	for (const AuditEvent &one : facts.events)
		if (one.event == "LEASE_CLAIMED")
			tries.insert({one.id, one.worker, one.number});
	for (const Leased &one : facts.leased)
	{
		const Attempt *attempt = facts.attempt_of_token(one.id, one.token);

		told.add(one.id, one.worker, one.done(), !one.certainly_not());
		if (one.done() && attempt != nullptr && is_audited(facts, one.id) &&
			tries.count({one.id, one.worker, attempt->number}) == 0)
			found.push_back({"events", "LEASE_CLAIMED names another attempt than the ledger", {one.id, one.token}});
	}
	told.check(lost_leases(history), never_open, found);
}

// In an ordered key what is leased behind a message is given back with it.
void
check_changed(const Facts &facts, const std::vector<Changed> &list, const std::string &event, Violations &found)
{
	Told told(facts, event);

	for (const Changed &one : list)
		told.add(one.id, one.call->fields.text("worker"), one.accepted() && one.done(),
				 one.refused.empty() && !one.certainly_not());
	told.check(
		{},
		[&](const std::string &id) {
			return event == "LEASE_RELEASED" && facts.ordered.count(facts.messages.at(id).queue) > 0;
		},
		found);
}

// Whether the message was certainly there when the call was asked: else its queue is not known.
class Births {
public:
	explicit Births(const Facts &facts)
	{
		for (const Enqueued &one : facts.enqueued)
			if (one.created)
				ended[one.id] = one.transaction->ended;
		for (const Replayed &one : facts.replayed)
			if (!one.replay.empty())
				ended[one.replay] = one.transaction->ended;
	}

	bool is_before(const std::string &id, const Call &call) const
	{
		auto found = ended.find(id);

		return found != ended.end() && found->second < call.asked;
	}

private:
	std::map<std::string, int64_t> ended;
};

// complete() raises: its refusal is told whatever becomes of the transaction, unless a crash comes first.
void
check_refused(const Facts &facts, Violations &found)
{
	Told told(facts, "LEASE_LOST_REFUSED");
	Births births(facts);

	for (const Reported &one : facts.reported)
	{
		bool raises = one.call->verb == "complete";
		bool refused = one.refused == "P7002";
		bool unanswered = one.call->answered == never;

		told.add(one.id, one.worker, refused && !raises && one.done() && births.is_before(one.id, *one.call),
				 (refused || unanswered) && (raises || !one.certainly_not()));
	}
	told.check({}, never_open, found);
}

void
check_queues(const Facts &facts, Violations &found)
{
	static const std::set<std::string> switched = {"LEASE_CLAIMED",          "LEASE_RENEWED",     "LEASE_RELEASED",
												   "LEASE_EXPIRED_REPAIRED", "ATTEMPT_COMPLETED", "TERMINAL_BLOCKED",
												   "LEASE_LOST_REFUSED"};

	for (const AuditEvent &one : facts.events)
	{
		auto message = facts.messages.find(one.id);

		if (message == facts.messages.end() || message->second.queue != one.queue)
			found.push_back({"events", one.event + " names another queue than the message", {one.id}});
		if (switched.count(one.event) > 0 && facts.audited.count(one.queue) == 0)
			found.push_back({"events", one.event + " of a queue that is not audited", {one.id}});
		if (one.event == "TERMINAL_BLOCKED")
			found.push_back({"events", "TERMINAL_BLOCKED of a ledger that nobody wrote by hand", {one.id}});
	}
}

} // namespace

void
check_events(const Facts &facts, const History &history, Violations &found)
{
	for (const Recorded &kind : in_ledger)
		check_recorded(facts, kind, found);
	check_replayed(facts, found);
	check_claimed(facts, history, found);
	check_changed(facts, facts.renewed, "LEASE_RENEWED", found);
	check_changed(facts, facts.released, "LEASE_RELEASED", found);
	check_refused(facts, found);
	check_queues(facts, found);
}
