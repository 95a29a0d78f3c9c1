// See checks.h: the order within the keys of fifo queues.

#include <algorithm>
#include <functional>

#include "checks.h"

namespace {

using Key = std::pair<std::string, std::string>; // queue, partition_key

// When a message ended, and by which transaction, if that is known.
struct End {
	int64_t earliest = 0;   // nobody saw it before
	int64_t latest = never; // everybody sees it from then on
	const Transaction *by = nullptr;
	const Attempt *attempt = nullptr;
};

class Ends {
public:
	explicit Ends(const Facts &of) : facts(of)
	{
		for (const Reported &one : facts.reported)
			if (one.refused.empty())
				causes[one.reference] = one.transaction;
		for (const auto *list : {&facts.cancelled, &facts.broken})
			for (const Intervened &one : *list)
				causes[one.reason] = one.transaction;
	}

	End of(const Message &message) const
	{
		auto attempts = facts.attempts.find(message.id);
		End end;

		if (attempts == facts.attempts.end() || !attempts->second.back().terminal())
			return {never, never, nullptr, nullptr};
		end.attempt = &attempts->second.back();
		end.by = cause_of(*end.attempt);
		if (end.by != nullptr)
		{
			end.earliest = end.by->commit_asked;
			end.latest = end.by->ended;
		}
		return end;
	}

private:
	const Facts &facts;
	std::map<std::string, const Transaction *> causes; // by reference, or reason

	const Transaction *cause_of(const Attempt &attempt) const
	{
		auto cause = causes.find(attempt.cancelled() || attempt.broken() ? attempt.error_message : attempt.reference);

		return attempt.lost() || attempt.released() || cause == causes.end() ? nullptr : cause->second;
	}
};

// When others may first have seen a message; never: that is not known.
int64_t
birth_of(const Facts &facts, const Message &message)
{
	if (message.replay_of.empty())
		return 0; // before those with greater numbers
	for (const Replayed &one : facts.replayed)
		if (one.replay == message.id)
			return one.transaction->ended;
	return never;
}

// What the transaction of a call did up to it.
bool
did(const Effect &effect, const std::function<bool(const Call &)> &what)
{
	return std::any_of(effect.transaction->calls.begin(), effect.transaction->calls.end(),
					   [&](const Call &call) { return call.number <= effect.call->number && what(call); });
}

bool
mentions(const std::vector<Fields> &list, const std::string &id)
{
	return std::any_of(list.begin(), list.end(), [&](const Fields &one) { return one.text("id") == id; });
}

// Leased by the same claim, or perhaps ended by the same transaction, whatever became of that.
bool
goes_with(const Effect &effect, const std::string &id)
{
	return mentions(effect.call->rows, id) ||
		   did(effect, [&](const Call &call) { return call.fields.text("id") == id || mentions(call.items, id); });
}

// Whether a call may have let a key go on behind a dead message.
bool
lets_go_on(const Call &call, const Message &dead)
{
	if (!call.sqlstate.empty())
		return false;
	return (call.verb == "replay" && call.fields.text("id") == dead.id) ||
		   (call.verb == "replayed" && std::any_of(call.rows.begin(), call.rows.end(),
												   [&](const Fields &row) { return row.text("id") == dead.id; })) ||
		   (call.verb == "unblock" && call.fields.text("queue") == dead.queue &&
			call.fields.text("partition_key") == dead.partition_key &&
			(call.rows.empty() || call.rows[0].text("id") == dead.id));
}

// Those that were not undone.
std::vector<std::pair<const Transaction *, const Call *>>
operators_calls(const History &history)
{
	std::vector<std::pair<const Transaction *, const Call *>> calls;

	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			if ((call.verb == "replay" || call.verb == "replayed" || call.verb == "unblock") &&
				outcome_of(transaction, call) != Outcome::undone)
				calls.emplace_back(&transaction, &call);
	return calls;
}

// A head that dies blocks its key. What an operator ended, or gave up behind the head, does not.
bool
blocks(const Facts &facts, const Message &message, const End &end)
{
	return facts.blocking.count(message.queue) > 0 && end.attempt != nullptr && end.attempt->state == "FAILED" &&
		   !end.attempt->cancelled() && !end.attempt->broken() && !end.attempt->released();
}

struct Orders {
	const Facts &facts;
	const Ends ends;
	const std::vector<std::pair<const Transaction *, const Call *>> calls;
	std::map<Key, std::vector<const Message *>> keys;
};

void
check_block(const Orders &orders, const Leased &lease, const Message &dead, const End &end, Violations &found)
{
	if (end.latest >= lease.call->asked || did(lease, [&](const Call &call) { return lets_go_on(call, dead); }))
		return;
	for (auto [transaction, call] : orders.calls)
		if (lets_go_on(*call, dead) && transaction->commit_asked <= lease.call->answered)
			return;
	found.push_back(
		{"order", "a message was leased behind a dead head that blocks its key", {lease.id, dead.id, lease.token}});
}

// See(message, end) for each of its key with a lesser number that others may have seen before the call.
template <typename See>
void
each_before(const Orders &orders, const Effect &effect, const std::string &id, const See &see)
{
	auto message = orders.facts.messages.find(id);

	if (message == orders.facts.messages.end() || message->second.number == 0 ||
		orders.facts.ordered.count(message->second.queue) == 0)
		return;
	for (const Message *before : orders.keys.at({message->second.queue, message->second.partition_key}))
		if (before->number < message->second.number && birth_of(orders.facts, *before) < effect.call->asked)
			see(*before, orders.ends.of(*before));
}

void
check_lease(const Orders &orders, const Leased &lease, Violations &found)
{
	each_before(orders, lease, lease.id, [&](const Message &before, const End &end) {
		if (end.earliest > lease.call->answered && !goes_with(lease, before.id))
			found.push_back({"order",
							 "a message was leased before an earlier one of its key had ended",
							 {lease.id, before.id, lease.token}});
		if (blocks(orders.facts, before, end))
			check_block(orders, lease, before, end, found);
	});
}

void
check_report(const Orders &orders, const Reported &report, Violations &found)
{
	if (!report.accepted())
		return;
	each_before(orders, report, report.id, [&](const Message &before, const End &end) {
		if (end.earliest > report.call->answered && !goes_with(report, before.id))
			found.push_back({"order",
							 "a message was reported before an earlier one of its key had ended",
							 {report.id, before.id, report.token}});
	});
}

// What was leased behind a message is given back when that is to be tried again.
void
check_given_back(const Orders &orders, const Leased &first, const Reported &report, Violations &found)
{
	const Message &message = orders.facts.messages.at(first.id);

	for (const Reported &later : orders.facts.reported)
	{
		auto other = orders.facts.messages.find(later.id);

		if (!later.accepted() || !later.done() || later.call->asked <= report.transaction->ended ||
			other == orders.facts.messages.end() || other->second.queue != message.queue ||
			other->second.partition_key != message.partition_key || other->second.number <= message.number)
			continue;
		if (std::any_of(first.call->rows.begin(), first.call->rows.end(),
						[&](const Fields &row) { return row.text("token") == later.token; }))
			found.push_back({"order",
							 "a message was reported under a lease that had been given back with another",
							 {later.id, first.id, later.token}});
	}
}

void
check_retries(const Orders &orders, Violations &found)
{
	std::map<std::string, const Leased *> leases;

	for (const Leased &lease : orders.facts.leased)
		leases[lease.token] = &lease;
	for (const Reported &report : orders.facts.reported)
	{
		auto lease = leases.find(report.token);
		auto message = orders.facts.messages.find(report.id);

		if (report.accepted() && report.done() && report.recorded == "RETRYABLE" && lease != leases.end() &&
			message != orders.facts.messages.end() && orders.facts.ordered.count(message->second.queue) > 0)
			check_given_back(orders, *lease->second, report, found);
	}
}

// Runs come back in the order of the key.
void
check_run(const Facts &facts, const Call &call, Violations &found)
{
	std::map<Key, int64_t> last;

	for (const Fields &row : call.rows)
	{
		auto message = facts.messages.find(row.text("id"));

		if (!row.has("token") || message == facts.messages.end() || facts.ordered.count(message->second.queue) == 0 ||
			message->second.number == 0)
			continue;

		int64_t &number = last[{message->second.queue, message->second.partition_key}];

		if (message->second.number <= number)
			found.push_back({"order", "a claim returned the messages of a key out of order", {row.text("id")}});
		number = message->second.number;
	}
}

} // namespace

bool
is_behind_in_run(const Facts &facts, const Leased &lease)
{
	auto message = facts.messages.find(lease.id);

	if (message == facts.messages.end() || facts.ordered.count(message->second.queue) == 0)
		return false;
	return std::any_of(lease.call->rows.begin(), lease.call->rows.end(), [&](const Fields &row) {
		auto other = facts.messages.find(row.text("id"));

		return row.has("token") && other != facts.messages.end() && other->second.queue == message->second.queue &&
			   other->second.partition_key == message->second.partition_key &&
			   other->second.number < message->second.number;
	});
}

void
check_order(const Facts &facts, const History &history, Violations &found)
{
	Orders orders = {facts, Ends(facts), operators_calls(history), {}};

	for (const auto &[id, message] : facts.messages)
		if (message.number > 0)
			orders.keys[{message.queue, message.partition_key}].push_back(&message);
	for (const Leased &lease : facts.leased)
		check_lease(orders, lease, found);
	for (const Reported &report : facts.reported)
		check_report(orders, report, found);
	check_retries(orders, found);
	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			if (call.fields.has("batch"))
				check_run(facts, call, found);
}
