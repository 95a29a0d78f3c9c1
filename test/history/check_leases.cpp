// See checks.h: the ledger, reports and leases.

#include <algorithm>

#include "checks.h"

namespace {

void
check_attempts(const Facts &facts, const Message &message, Violations &found)
{
	auto at = facts.attempts.find(message.id);
	auto ceiling = facts.ceilings.find(message.queue);
	int64_t expected = 0;
	int terminal = 0;

	if (at != facts.attempts.end())
		for (const Attempt &attempt : at->second)
		{
			if (attempt.number != ++expected)
				found.push_back({"ledger", "attempts do not count 1, 2, 3 ...", {message.id}});
			terminal += attempt.terminal();
		}
	if (terminal == 0 && facts.pending.count(message.id) == 0)
		found.push_back({"ledger", "a message is neither pending nor has it ended", {message.id}});
	if (terminal > 1 || (terminal == 1 && !at->second.back().terminal()))
		found.push_back({"ledger", "more than one outcome, or attempts after it", {message.id}});
	if (ceiling != facts.ceilings.end() && ceiling->second > 0 && expected > ceiling->second)
		found.push_back({"ledger", "more attempts than max_attempts", {message.id}});
}

bool
is_report(const Attempt &attempt)
{
	return !attempt.lost() && !attempt.cancelled() && !attempt.broken() && !attempt.released();
}

bool
may_become(const std::string &asked, const Attempt &attempt)
{
	return asked == attempt.state ||
		   (asked == "RETRYABLE" && attempt.state == "FAILED" && attempt.error_code == "RETRIES_EXHAUSTED");
}

void
check_accepted(const Facts &facts, const Reported &report, Violations &found)
{
	const Attempt *attempt = facts.attempt_number(report.id, report.number);

	if (!report.accepted() || !report.done())
		return;
	if (attempt == nullptr || attempt->reference != report.reference)
		found.push_back({"reports", "an accepted report is not in the ledger", {report.id, report.token}});
	else if (attempt->token != report.token || attempt->worker != report.worker || attempt->state != report.recorded)
		found.push_back(
			{"reports", "the ledger holds a report otherwise than it was answered", {report.id, report.token}});
}

// What a refused report is told of the attempt under its token.
void
check_told(const Facts &facts, const Reported &report, Violations &found)
{
	const Attempt *attempt = facts.attempt_number(report.id, report.number);

	if (report.refused.empty() || report.number == 0 || !report.done())
		return;
	if (attempt == nullptr || attempt->token != report.token || attempt->state != report.recorded)
		found.push_back(
			{"reports", "a refused report was told of an attempt that is not there", {report.id, report.token}});
}

void
check_cause(const Attempt &attempt, const std::map<std::string, const Reported *> &by_reference, Violations &found)
{
	auto report = by_reference.find(attempt.reference);
	std::vector<std::string> about = {attempt.id, attempt.token};

	if (report == by_reference.end())
		found.push_back({"reports", "nobody reported this attempt", about});
	else if (!report->second->refused.empty())
		found.push_back({"reports", "a refused report is in the ledger", about});
	else if (report->second->certainly_not())
		found.push_back({"reports", "a report is in the ledger that was not committed", about});
	else if (report->second->id != attempt.id || report->second->token != attempt.token ||
			 report->second->worker != attempt.worker || !may_become(report->second->state, attempt))
		found.push_back({"reports", "the ledger holds a report otherwise than it was made", about});
}

void
check_many(const std::vector<Many> &list, const std::string &other_number, Violations &found)
{
	for (const Many &one : list)
		if (one.done() && one.told >= 0 && one.told != one.there)
			found.push_back({"reports", other_number, {one.transaction->name()}});
}

// Of cancelled messages, or of broken leases: each has its attempt, and each such attempt was asked for.
void
check_interventions(const Facts &facts, const std::vector<Intervened> &list, bool (Attempt::*is_one)() const,
					const std::string &no_attempt, const std::string &nobody, Violations &found)
{
	std::map<std::string, const Intervened *> by_reason;

	for (const Intervened &one : list)
	{
		const Attempt *attempt = facts.attempt_number(one.id, one.number);

		by_reason[one.reason] = &one;
		if (one.done() && one.number > 0 &&
			(attempt == nullptr || !(attempt->*is_one)() || attempt->error_message != one.reason))
			found.push_back({"reports", no_attempt, {one.id}});
	}
	for (const auto &[id, attempts] : facts.attempts)
		for (const Attempt &attempt : attempts)
			if ((attempt.*is_one)() &&
				(by_reason.count(attempt.error_message) == 0 || by_reason[attempt.error_message]->certainly_not()))
				found.push_back({"reports", nobody, {id, attempt.token}});
}

// ---- releases

// What is known of the releases of one message.
struct Releases {
	int64_t counted = 0;  // as tries, in the ledger
	int64_t untried = 0;  // certainly
	int64_t possible = 0; // untried, at most
};

// Whether the ledger holds what was answered, and nothing that nobody asked for.
void
check_release(const Facts &facts, const Changed &one, std::map<std::string, Releases> &messages, Violations &found)
{
	const Attempt *attempt = facts.attempt_of_token(one.id, one.token);
	bool counted = attempt != nullptr && attempt->released();

	if (!one.refused.empty() || one.certainly_not())
		return;
	messages[one.id].possible += !counted;
	if (!one.accepted() || !one.done())
		return;
	messages[one.id].untried += !counted;
	if (one.is_due ? counted && attempt->terminal() : !counted || !attempt->terminal())
		found.push_back({"reports", "a release is not in the ledger as it was answered", {one.id, one.token}});
}

void
check_releases(const Facts &facts, Violations &found)
{
	std::map<std::string, Releases> messages;
	std::set<std::string> asked;

	for (const Changed &one : facts.released)
	{
		check_release(facts, one, messages, found);
		if (one.refused.empty() && !one.certainly_not())
			asked.insert(one.token);
	}
	for (const auto &[id, attempts] : facts.attempts)
		for (const Attempt &attempt : attempts)
		{
			messages[id].counted += attempt.released();
			if (attempt.released() && asked.count(attempt.token) == 0)
				found.push_back({"reports", "nobody released this lease", {id, attempt.token}});
		}
	for (const auto &[id, releases] : messages)
	{
		auto message = facts.messages.find(id);
		auto most = message == facts.messages.end() ? facts.most_releases.end()
													: facts.most_releases.find(message->second.queue);
		bool is_limited = most != facts.most_releases.end();

		if (is_limited && releases.untried > (releases.counted + 1) * most->second)
			found.push_back({"reports", "more releases than max_releases, and none of them a try", {id}});
		if (releases.counted > 0 && (!is_limited || releases.possible < releases.counted * most->second))
			found.push_back({"reports", "a release counted as a try too early", {id}});
	}
}

void
check_repairs(const Facts &facts, Violations &found)
{
	for (const Repaired &one : facts.repaired)
	{
		const Attempt *attempt = facts.attempt_number(one.id, one.number);

		if (one.done() &&
			(attempt == nullptr || !attempt->lost() || attempt->state != one.state || attempt->worker != one.lost_by))
			found.push_back({"reports", "a repair is not in the ledger", {one.id}});
	}
}

// ---- leases

struct Use {
	const Effect *effect;
	std::string verb;
};

// All that is known of one lease.
struct Story {
	const Leased *lease = nullptr;
	std::vector<const Attempt *> attempts;
	std::vector<Use> uses; // accepted and committed: reports, renewals, releases
	int64_t releases = 0;  // accepted and committed
	bool released_maybe = false;
	bool renewed_maybe = false;
	int64_t expires = 0;
};

using Stories = std::map<std::string, Story>; // by token

Stories
stories_of(const Facts &facts, Violations &found)
{
	Stories stories;

	for (const Leased &lease : facts.leased)
	{
		Story &story = stories[lease.token];

		if (story.lease != nullptr)
			found.push_back({"leases", "one token for two leases", {lease.token}});
		story.lease = &lease;
		story.expires = lease.expires;
	}
	for (const auto &[id, attempts] : facts.attempts)
		for (const Attempt &attempt : attempts)
			if (!attempt.token.empty())
				stories[attempt.token].attempts.push_back(&attempt);
	for (const Reported &one : facts.reported)
		if (one.accepted() && one.done())
			stories[one.token].uses.push_back({&one, "report"});
	for (const Changed &one : facts.renewed)
	{
		Story &story = stories[one.token];

		story.renewed_maybe |= !one.certainly_not() && one.refused.empty() && !(one.answered && one.done());
		if (!one.accepted() || !one.done())
			continue;
		story.uses.push_back({&one, "renewal"});
		story.expires = std::max(story.expires, one.expires);
	}
	for (const Changed &one : facts.released)
	{
		Story &story = stories[one.token];

		story.released_maybe |= !one.certainly_not() && one.refused.empty();
		if (!one.accepted() || !one.done())
			continue;
		story.releases++;
		story.uses.push_back({&one, "release"});
	}
	return stories;
}

// Whether a crash may have taken back a lease that was committed asynchronously: nobody who
// began to commit after it had been told that he had.
class Forgotten {
public:
	explicit Forgotten(const Facts &of) : facts(of)
	{
		for (const Enqueued &one : facts.enqueued)
			if (one.done() && one.created)
				durable.push_back(one.transaction);
		for (const Reported &one : facts.reported)
			if (one.done() && one.accepted())
				durable.push_back(one.transaction);
	}

	bool may_be(const Leased &lease) const
	{
		if (!lease.transaction->async)
			return false;
		return std::any_of(facts.crashes.begin(), facts.crashes.end(), [&](const Crash &crash) {
			return lease.call->answered <= crash.until && !is_durable(lease, crash);
		});
	}

private:
	const Facts &facts;
	std::vector<const Transaction *> durable;

	bool is_durable(const Leased &lease, const Crash &crash) const
	{
		return std::any_of(durable.begin(), durable.end(), [&](const Transaction *other) {
			return other->commit_asked >= lease.transaction->ended && other->ended <= crash.from;
		});
	}
};

void
check_end(const Story &story, const Facts &facts, const Forgotten &forgotten, Violations &found)
{
	const Leased &lease = *story.lease;
	std::vector<std::string> about = {lease.id, lease.token};
	// A release that counted as a try is both.
	int64_t counted = std::count_if(story.attempts.begin(), story.attempts.end(),
									[](const Attempt *attempt) { return attempt->released(); });
	int64_t ends = static_cast<int64_t>(story.attempts.size()) + std::max(story.releases - counted, int64_t{0});

	if (lease.certainly_not())
	{
		if (ends > 0 || !story.uses.empty())
			found.push_back({"leases", "a lease that was rolled back changed something", about});
		return;
	}
	if (ends > 1)
		found.push_back({"leases", "a lease ended twice", about});
	if (ends == 0 && lease.done() && !story.released_maybe && facts.pending.count(lease.id) == 0 &&
		!forgotten.may_be(lease) && !is_behind_in_run(facts, lease))
		found.push_back({"leases", "a lease left no trace in the ledger", about});
	for (const Attempt *attempt : story.attempts)
		if (attempt->id != lease.id || attempt->worker != lease.worker)
			found.push_back({"leases", "an attempt under another's token", about});
}

void
check_times(const Story &story, const Facts &facts, Violations &found)
{
	std::vector<std::string> about = {story.lease->id, story.lease->token};

	for (const Attempt *attempt : story.attempts)
		if (attempt->lost() && attempt->created_at < story.expires && !facts.stepped_near(attempt->created_at) &&
			!facts.stepped_near(story.expires))
			found.push_back({"leases", "a lease was taken back before its time", about});
	if (story.renewed_maybe)
		return;
	for (const Use &use : story.uses)
	{
		int64_t asked = facts.server_time(use.effect->call->asked);

		if (asked >= story.expires && !facts.stepped_during(*use.effect->call))
			found.push_back({"leases", "a " + use.verb + " was accepted though the lease was over", about});
	}
}

// Two leases of one message, of which the second was asked for when the first was certain.
void
check_pair(const Story &first, const Story &second, Violations &found)
{
	std::vector<std::string> about = {first.lease->id, first.lease->token, second.lease->token};

	for (const Use &use : first.uses)
		if (use.effect->call->asked > second.lease->call->answered)
			found.push_back({"leases", "a stale token was accepted: a " + use.verb + " after the next lease", about});
	if (!first.attempts.empty() && !second.attempts.empty() && first.attempts[0]->number >= second.attempts[0]->number)
		found.push_back({"leases", "two leases at a time: the later one ended first", about});
}

void
check_pairs(const Stories &stories, Violations &found)
{
	std::map<std::string, std::vector<const Story *>> by_message;

	for (const auto &[token, story] : stories)
		if (story.lease != nullptr && story.lease->done())
			by_message[story.lease->id].push_back(&story);
	for (const auto &[id, list] : by_message)
		for (const Story *first : list)
			for (const Story *second : list)
				if (first->lease->transaction->ended < second->lease->call->asked)
					check_pair(*first, *second, found);
}

// ---- what operators do between

void
check_broken(const Facts &facts, const Stories &stories, Violations &found)
{
	for (const Intervened &one : facts.broken)
	{
		const Attempt *attempt = facts.attempt_number(one.id, one.number);
		auto story = attempt == nullptr ? stories.end() : stories.find(attempt->token);

		if (!one.done() || story == stories.end())
			continue;
		for (const Use &use : story->second.uses)
			if (use.effect->call->asked > one.transaction->ended)
				found.push_back({"leases", "a broken lease was used: a " + use.verb, {one.id, attempt->token}});
	}
}

// Another one, of which it is not certain that it came first.
bool
is_rescheduled_again(const Facts &facts, const Rescheduled &first)
{
	return std::any_of(facts.rescheduled.begin(), facts.rescheduled.end(), [&](const Rescheduled &other) {
		return &other != &first && other.id == first.id && !other.certainly_not() &&
			   other.transaction->ended >= first.call->asked;
	});
}

void
check_rescheduled(const Facts &facts, const Rescheduled &one, const Story &story, Violations &found)
{
	const Leased &lease = *story.lease;
	std::vector<std::string> about = {one.id, lease.token};

	if (lease.done() && lease.transaction->ended < one.call->asked)
		for (const Use &use : story.uses)
			if (use.effect->call->asked > one.call->answered)
			{
				found.push_back({"leases", "a leased message was rescheduled", about});
				break;
			}
	// What is not leased is due at no other time unless it is rescheduled again.
	if (lease.call->asked > one.transaction->ended && facts.server_time(lease.call->answered) < one.due &&
		!facts.stepped_near(one.due) && !facts.stepped_during(*lease.call) && !is_rescheduled_again(facts, one))
		found.push_back({"leases", "a message was leased before it was due", about});
}

void
check_schedule(const Facts &facts, const Stories &stories, Violations &found)
{
	std::map<std::string, std::vector<const Story *>> by_message;

	for (const auto &[token, story] : stories)
		if (story.lease != nullptr)
			by_message[story.lease->id].push_back(&story);
	for (const Rescheduled &one : facts.rescheduled)
		if (one.done() && one.due > 0)
			for (const Story *story : by_message[one.id])
				check_rescheduled(facts, one, *story, found);
}

// Tokens of the ledger that nobody was told of: from claims whose answer was lost.
void
check_untold(const History &history, const Stories &stories, Violations &found)
{
	std::map<std::string, int64_t> possible;

	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			if (call.fields.has("batch") && call.answered == never && transaction.outcome != Outcome::undone)
				possible[call.fields.text("worker")] += call.fields.number("batch");
	for (const auto &[token, story] : stories)
	{
		if (story.lease != nullptr || story.attempts.empty())
			continue;
		if (--possible[story.attempts[0]->worker] < 0)
			found.push_back({"leases", "nobody was given this lease", {story.attempts[0]->id, token}});
	}
}

// From when a queue was certainly paused until somebody began to resume it. One whose answer
// was lost may have resumed it at any time after.
std::vector<std::pair<int64_t, int64_t>>
pauses_of(const History &history, const std::string &queue)
{
	std::vector<const Call *> calls;
	std::vector<std::pair<int64_t, int64_t>> pauses;
	const Call *paused = nullptr;

	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			if ((call.verb == "pause" || call.verb == "resume") && call.fields.text("queue") == queue)
				calls.push_back(&call);
	std::sort(calls.begin(), calls.end(), [](const Call *a, const Call *b) { return a->asked < b->asked; });
	for (const Call *call : calls)
	{
		if (call->verb == "resume" && call->answered == never)
			return pauses;
		if (call->verb == "resume" && paused != nullptr)
			pauses.push_back({paused->answered, call->asked});
		paused = call->verb == "pause" && call->ok() ? call : nullptr;
	}
	return pauses;
}

void
check_pauses(const Facts &facts, const History &history, Violations &found)
{
	for (const auto &[queue, ceiling] : facts.ceilings)
	{
		auto pauses = pauses_of(history, queue);

		for (const Leased &lease : facts.leased)
			for (auto [from, until] : pauses)
				if (lease.queue == queue && lease.call->asked > from && lease.call->answered < until)
					found.push_back({"leases", "a lease of a paused queue", {lease.id, lease.token}});
	}
}

void
check_batches(const History &history, Violations &found)
{
	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
		{
			std::set<std::string> ids;
			int64_t leases = 0;

			if (!call.fields.has("batch"))
				continue;
			for (const Fields &row : call.rows)
				if (row.has("token"))
				{
					leases++;
					ids.insert(row.text("id"));
				}
			if (leases > call.fields.number("batch") || static_cast<int64_t>(ids.size()) < leases)
				found.push_back({"leases", "more leases than asked, or a message twice", {transaction.name()}});
		}
}

} // namespace

void
check_ledger(const Facts &facts, Violations &found)
{
	for (const auto &[id, message] : facts.messages)
		check_attempts(facts, message, found);
	for (const auto &[id, attempts] : facts.attempts)
		if (facts.messages.count(id) == 0)
			found.push_back({"ledger", "attempts without their message", {id}});
}

void
check_reports(const Facts &facts, Violations &found)
{
	std::map<std::string, const Reported *> by_reference;

	for (const Reported &report : facts.reported)
	{
		by_reference[report.reference] = &report;
		check_accepted(facts, report, found);
		check_told(facts, report, found);
	}
	for (const auto &[id, attempts] : facts.attempts)
		for (const Attempt &attempt : attempts)
			if (is_report(attempt))
				check_cause(attempt, by_reference, found);
	check_interventions(facts, facts.cancelled, &Attempt::cancelled, "a cancelled message has no such attempt",
						"nobody cancelled this message", found);
	check_many(facts.cancelled_many, "cancel_many told of another number than it cancelled", found);
	check_many(facts.replayed_many, "replay_many told of another number than it replayed", found);
	check_interventions(facts, facts.broken, &Attempt::broken, "a broken lease has no such attempt",
						"nobody broke this lease", found);
	check_releases(facts, found);
	check_repairs(facts, found);
}

void
check_leases(const Facts &facts, const History &history, Violations &found)
{
	Stories stories = stories_of(facts, found);
	Forgotten forgotten(facts);

	for (const auto &[token, story] : stories)
		if (story.lease != nullptr)
		{
			check_end(story, facts, forgotten, found);
			check_times(story, facts, found);
		}
	check_pairs(stories, found);
	check_broken(facts, stories, found);
	check_schedule(facts, stories, found);
	check_untold(history, stories, found);
	check_pauses(facts, history, found);
	check_batches(history, found);
}

Violations
check(History &history)
{
	Facts facts = facts_of(history);
	Violations found;

	check_messages(facts, found);
	check_keys(facts, found);
	check_numbers(facts, found);
	check_replays(facts, found);
	check_ledger(facts, found);
	check_reports(facts, found);
	check_leases(facts, history, found);
	check_limits(facts, found);
	check_order(facts, history, found);
	check_events(facts, history, found);
	check_counters(history, found);
	check_errors(history, found);
	return found;
}
