// See checks.h: messages, keys, numbers, replays; counters and errors.

#include <algorithm>

#include "checks.h"

namespace {

// Who made a message, by its tag. nullptr: nobody, or more than one (which is told of).
std::map<std::string, const Enqueued *>
makers_of(const Facts &facts, Violations &found)
{
	std::map<std::string, const Enqueued *> makers;

	for (const Enqueued &one : facts.enqueued)
	{
		if (!one.id.empty() && !one.created)
			continue;
		if (!makers.emplace(one.tag, &one).second)
			found.push_back({"messages", "two calls made one message", {one.tag}});
	}
	return makers;
}

void
check_made(const Facts &facts, const Enqueued &one, Violations &found)
{
	auto message = facts.messages.find(one.id);

	if (!one.created)
		return;
	if (message == facts.messages.end())
	{
		if (one.done())
			found.push_back({"messages", "a committed message is lost", {one.id, one.tag}});
	}
	else if (one.certainly_not())
		found.push_back({"messages", "a message is there that was not committed", {one.id, one.tag}});
	else if (message->second.tag != one.tag || message->second.queue != one.queue ||
			 message->second.number != one.number)
		found.push_back({"messages", "a message is not what was enqueued", {one.id, one.tag}});
}

void
check_stored(const Message &message, const std::map<std::string, const Enqueued *> &makers, Violations &found)
{
	auto maker = makers.find(message.tag);

	if (!message.replay_of.empty())
		return;
	if (maker == makers.end())
		found.push_back({"messages", "nobody enqueued this message", {message.id, message.tag}});
	else if (maker->second->certainly_not())
		found.push_back({"messages", "a message is there that was not committed", {message.id, message.tag}});
}

// When a message could first be seen by others, and by whose transaction it was made.
struct Birth {
	int64_t at = never;
	const Transaction *by = nullptr;
	bool undone = false;
};

Birth
birth_of(const Facts &facts, const Leased &lease, const std::map<std::string, const Enqueued *> &makers,
		 const std::map<std::string, const Replayed *> &replays)
{
	auto message = facts.messages.find(lease.id);
	const Effect *by = nullptr;

	if (message != facts.messages.end() && !message->second.replay_of.empty())
	{
		auto replay = replays.find(lease.id);

		// A replay whose answer was lost.
		if (replay == replays.end())
			return {0, nullptr, false};
		by = replay->second;
	}
	else if (auto maker = makers.find(lease.tag); maker != makers.end())
		by = maker->second;
	if (by == nullptr)
		return {};
	return {by->transaction->commit_asked, by->transaction, by->certainly_not()};
}

void
check_seen(const Facts &facts, const std::map<std::string, const Enqueued *> &makers, Violations &found)
{
	std::map<std::string, const Replayed *> replays;

	for (const Replayed &one : facts.replayed)
		if (!one.replay.empty())
			replays[one.replay] = &one;
	for (const Leased &lease : facts.leased)
	{
		Birth birth = birth_of(facts, lease, makers, replays);

		if (birth.by == lease.transaction)
			continue;
		if (birth.undone || facts.messages.count(lease.id) == 0)
			found.push_back({"messages", "a worker got a message that was not committed", {lease.id, lease.tag}});
		else if (birth.at > lease.call->answered)
			found.push_back({"messages", "a worker got a message before its commit", {lease.id, lease.tag}});
		else if (facts.messages.at(lease.id).tag != lease.tag)
			found.push_back({"messages", "a worker got another payload", {lease.id, lease.tag}});
	}
}

using Users = std::map<std::string, std::vector<const Enqueued *>>;

void
check_users(const std::string &key, const std::vector<const Enqueued *> &users, const std::string &id_of_key,
			Violations &found)
{
	std::map<const Transaction *, std::set<std::string>> own;

	for (const Enqueued *one : users)
	{
		if (one->id.empty())
			continue;
		if (one->created)
			own[one->transaction].insert(one->id);
		if (!one->created && own[one->transaction].count(one->id) > 0)
			continue;
		if (one->id != id_of_key && (one->done() || !one->created))
			found.push_back({"keys", key + " was answered with a message that is not its own", {one->id, id_of_key}});
	}
}

template <typename KeyOf>
void
check_key_kind(const Facts &facts, const KeyOf &key_of, Violations &found)
{
	std::map<std::string, std::string> ids;
	Users users;

	for (const auto &[id, message] : facts.messages)
	{
		std::string key = key_of(message);

		if (key.empty() || !message.replay_of.empty())
			continue;
		if (!ids.emplace(message.queue + " " + key, id).second)
			found.push_back({"keys", "two messages of " + key, {id, ids[message.queue + " " + key]}});
	}
	for (const Enqueued &one : facts.enqueued)
		if (std::string key = key_of(one); !key.empty())
			users[one.queue + " " + key].push_back(&one);
	for (const auto &[key, list] : users)
		check_users(key.substr(key.find(' ') + 1), list, ids.count(key) > 0 ? ids[key] : "", found);
}

bool
is_in_place(const Facts &facts, const Message &message)
{
	auto dead = facts.messages.find(message.replay_of);

	return facts.blocking.count(message.queue) > 0 && dead != facts.messages.end() &&
		   dead->second.number == message.number;
}

// A number is told to others only when all numbers below it are committed.
void
check_order(std::vector<const Enqueued *> &numbers, Violations &found)
{
	const Enqueued *latest = nullptr; // to be committed, of those before

	std::sort(numbers.begin(), numbers.end(),
			  [](const Enqueued *a, const Enqueued *b) { return a->number < b->number; });
	for (const Enqueued *one : numbers)
	{
		if (latest != nullptr && latest->transaction != one->transaction &&
			latest->transaction->commit_asked > one->call->answered)
			found.push_back({"numbers", "a number was given before one below it was committed", {one->id, latest->id}});
		if (latest == nullptr || one->transaction->commit_asked > latest->transaction->commit_asked)
			latest = one;
	}
}

void
check_counter_row(const Fields &row, std::map<std::string, Fields> &last, Violations &found)
{
	Fields &before = last[row.text("queue")];

	if (!before.empty() && before.text("stats_reset") == row.text("stats_reset"))
		for (const auto &[name, value] : row)
			if (name != "n" && name != "queue" && name != "stats_reset" && before.number(name) > std::stoll(value))
				found.push_back(
					{"counters",
					 name + " of queue " + row.text("queue") + " fell from " + before.text(name) + " to " + value,
					 {}});
	before = row;
}

const std::set<std::string> &
expected_of(const std::string &verb)
{
	static const std::set<std::string> waits = {"57014", "40P01", "55P03"};
	static const std::set<std::string> never_waits = {"57014"};
	static const std::set<std::string> report = {"57014", "40P01", "55P03", "P7002", "P7003"};
	static const std::set<std::string> release = {"57014", "55P03"};
	static const std::set<std::string> unblock = {"57014", "40P01", "55P03", "P7005"};
	static const std::set<std::string> cancel = {"57014", "40P01", "55P03", "P7005", "55006"};
	static const std::set<std::string> breaking = {"57014", "40P01", "55P03", "P7005", "55000"};
	static const std::set<std::string> finish = {"57014", "42704", "55000"};

	if (verb == "claim" || verb == "repair" || verb == "renew" || verb == "stats" || verb == "cancel_many" ||
		verb == "replay_many" || verb == "replayed")
		return never_waits;
	if (verb == "complete")
		return report;
	if (verb == "unblock")
		return unblock;
	if (verb == "release")
		return release;
	if (verb == "cancel" || verb == "replay" || verb == "reschedule")
		return cancel;
	if (verb == "break")
		return breaking;
	return verb == "finish" ? finish : waits;
}

// Of single items.
const std::set<std::string> &
expected_of_items(const std::string &verb)
{
	static const std::set<std::string> refused = {"P7002", "P7003"};
	static const std::set<std::string> lost_or_busy = {"P7002", "55P03"};

	return verb == "renew" || verb == "release" ? lost_or_busy : refused;
}

} // namespace

void
check_messages(const Facts &facts, Violations &found)
{
	std::map<std::string, const Enqueued *> makers = makers_of(facts, found);
	std::map<std::string, std::string> tags;

	for (const Enqueued &one : facts.enqueued)
		check_made(facts, one, found);
	for (const auto &[id, message] : facts.messages)
	{
		check_stored(message, makers, found);
		if (message.replay_of.empty() && !tags.emplace(message.tag, id).second)
			found.push_back({"messages", "a message is there twice", {id, tags[message.tag]}});
	}
	check_seen(facts, makers, found);
	for (const Transaction *half : facts.halves)
		found.push_back({"messages", "only a part of a transaction was committed", {half->name()}});
	for (const std::string &id : facts.pending)
		found.push_back({"messages", "a message did not end", {id}});
	for (const Event &left : facts.left)
		found.push_back(
			{"messages", "a message was due, and the next claim did not return it", {left.fields.text("id")}});
}

void
check_keys(const Facts &facts, Violations &found)
{
	check_key_kind(
		facts, [](const auto &one) { return one.key; }, found);
	check_key_kind(
		facts, [](const auto &one) { return one.event; }, found);
}

void
check_numbers(const Facts &facts, Violations &found)
{
	std::map<std::string, std::vector<int64_t>> stored;
	std::map<std::string, std::vector<const Enqueued *>> told;

	for (const auto &[id, message] : facts.messages)
	{
		if (message.partition_key.empty() != (message.number == 0))
			found.push_back({"numbers", "numbered without a key, or a key without a number", {id}});
		// A replay may have the number of the dead head in whose place it is.
		if (message.number != 0 && !is_in_place(facts, message))
			stored[message.partition_key].push_back(message.number);
	}
	for (auto &[key, numbers] : stored)
	{
		std::sort(numbers.begin(), numbers.end());
		for (size_t i = 0; i < numbers.size(); i++)
			if (numbers[i] != static_cast<int64_t>(i) + 1)
			{
				found.push_back(
					{"numbers", "number " + std::to_string(i + 1) + " of " + key + " is missing or there twice", {}});
				break;
			}
	}
	for (const Enqueued &one : facts.enqueued)
		if (one.done() && one.created && !one.partition_key.empty())
			told[one.partition_key].push_back(&one);
	for (auto &[key, numbers] : told)
		check_order(numbers, found);
}

void
check_replays(const Facts &facts, Violations &found)
{
	std::map<std::string, std::string> replays;
	std::set<std::string> asked;

	for (const Replayed &one : facts.replayed)
	{
		if (!one.certainly_not())
			asked.insert(one.id);
		if (one.replay.empty())
			continue;
		if (one.done() && facts.messages.count(one.replay) == 0)
			found.push_back({"replays", "a committed replay is lost", {one.id, one.replay}});
		if (one.certainly_not() && facts.messages.count(one.replay) > 0)
			found.push_back({"replays", "a replay is there that was not committed", {one.id, one.replay}});
	}
	for (const auto &[id, message] : facts.messages)
	{
		if (message.replay_of.empty())
			continue;
		if (!replays.emplace(message.replay_of, id).second)
			found.push_back({"replays", "replayed twice", {message.replay_of, id, replays[message.replay_of]}});
		if (asked.count(message.replay_of) == 0)
			found.push_back({"replays", "nobody asked for this replay", {message.replay_of, id}});
	}
}

void
check_counters(const History &history, Violations &found)
{
	std::vector<const Call *> looks;
	std::map<std::string, Fields> last;

	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			if (call.verb == "stats" && call.ok())
				looks.push_back(&call);
	std::sort(looks.begin(), looks.end(), [](const Call *a, const Call *b) { return a->asked < b->asked; });
	for (const Call *look : looks)
		for (const Fields &row : look->rows)
			check_counter_row(row, last, found);
}

void
check_errors(const History &history, Violations &found)
{
	for (const Transaction &transaction : history.transactions)
	{
		for (const Call &call : transaction.calls)
		{
			if (!call.sqlstate.empty() && expected_of(call.verb).count(call.sqlstate) == 0)
				found.push_back({"errors", call.verb + " failed with " + call.sqlstate, {transaction.name()}});
			for (const Fields &row : call.rows)
				if (row.has("error") && expected_of_items(call.verb).count(row.text("error")) == 0)
					found.push_back(
						{"errors", call.verb + " answered with " + row.text("error"), {transaction.name()}});
		}
		if (transaction.ended_as == "error" && !transaction.automatic && transaction.end_sqlstate != "57014")
			found.push_back(
				{"errors", "a transaction's end failed with " + transaction.end_sqlstate, {transaction.name()}});
	}
}
