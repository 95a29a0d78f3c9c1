// See facts.h.

#include "facts.h"

#include <algorithm>

namespace {

class Collector {
public:
	explicit Collector(Facts &to) : facts(to) {}
	void collect(const History &history);

private:
	Facts &facts;

	void add_replayed_many(const Effect &effect);
	void add_cancelled_many(Many &many);
	void add_call(const Effect &effect);
	void add_enqueued(const Effect &effect);
	void add_leased(const Effect &effect);
	void add_reported(const Effect &effect);
	void add_changed(const Effect &effect, std::vector<Changed> &to);
	void add_other(const Event &event);
};

void
Collector::add_enqueued(const Effect &effect)
{
	const Call &call = *effect.call;

	for (size_t i = 0; i < call.items.size(); i++)
	{
		const Fields &item = call.items[i];
		Enqueued one{effect};

		one.tag = item.text("tag");
		one.queue = item.text("queue");
		one.key = item.text("key");
		one.event = item.text("event");
		one.partition_key = item.text("partition_key");
		if (call.ok() && i < call.rows.size())
		{
			one.id = call.rows[i].text("id");
			one.number = call.rows[i].number("number");
			one.created = call.rows[i].number("created") != 0;
		}
		facts.enqueued.push_back(one);
	}
}

void
Collector::add_leased(const Effect &effect)
{
	const Call &call = *effect.call;

	for (size_t i = 0; i < call.rows.size(); i++)
	{
		const Fields &row = call.rows[i];
		Leased one{effect};

		if (!row.has("token") || row.text("kind") == "completed")
			continue;
		one.id = row.text("id");
		one.token = row.text("token");
		one.worker = call.fields.text("worker");
		one.tag = call.verb == "enqueue_and_claim" ? call.items[i].text("tag") : row.text("tag");
		one.queue = call.verb == "enqueue_and_claim" ? call.items[i].text("queue") : row.text("queue");
		one.expires = row.number("expires");
		facts.leased.push_back(one);
	}
}

void
Collector::add_reported(const Effect &effect)
{
	const Call &call = *effect.call;

	for (size_t i = 0; i < call.items.size(); i++)
	{
		const Fields &item = call.items[i];
		Reported one{effect};

		one.id = item.text("id");
		one.token = item.text("token");
		one.worker = call.fields.text("worker");
		one.state = item.text("state");
		one.reference = item.text("reference");
		one.refused = call.sqlstate;
		if (call.ok() && i < call.rows.size())
		{
			one.refused = call.rows[i].text("error");
			one.number = call.rows[i].number("no");
			one.recorded = call.rows[i].text("recorded");
		}
		facts.reported.push_back(one);
	}
}

void
Collector::add_changed(const Effect &effect, std::vector<Changed> &to)
{
	const Call &call = *effect.call;

	for (size_t i = 0; i < call.items.size(); i++)
	{
		Changed one{effect};

		one.id = call.items[i].text("id");
		one.token = call.items[i].text("token");
		one.refused = call.sqlstate;
		if (call.ok() && i < call.rows.size())
		{
			one.answered = true;
			one.refused = call.rows[i].text("error");
			one.expires = call.rows[i].number("expires");
			one.is_due = call.rows[i].has("next_attempt_at");
		}
		to.push_back(one);
	}
}

// What the transaction of a replay_many then saw of it.
void
Collector::add_replayed_many(const Effect &effect)
{
	Many &many = facts.replayed_many.back();

	if (!effect.call->ok())
		many.told = -1;
	many.there = static_cast<int64_t>(effect.call->rows.size());
	for (const Fields &row : effect.call->rows)
		facts.replayed.push_back({effect, row.text("id"), row.text("replay")});
}

// Each message that it has cancelled counts as if it were cancelled alone.
void
Collector::add_cancelled_many(Many &many)
{
	for (const auto &[id, attempts] : facts.attempts)
		for (const Attempt &attempt : attempts)
			if (attempt.error_message == many.reason)
			{
				facts.cancelled.push_back({many, id, many.reason, many.told >= 0 ? attempt.number : 0});
				many.there++;
			}
}

void
Collector::add_call(const Effect &effect)
{
	const Call &call = *effect.call;

	if (call.verb == "enqueue" || call.verb == "enqueue_batch" || call.verb == "enqueue_and_claim")
		add_enqueued(effect);
	if (call.verb == "claim" || call.verb == "complete_and_claim" || call.verb == "enqueue_and_claim")
		add_leased(effect);
	if (call.verb == "complete" || call.verb == "complete_batch" || call.verb == "complete_and_claim")
		add_reported(effect);
	if (call.verb == "renew")
		add_changed(effect, facts.renewed);
	if (call.verb == "release")
		add_changed(effect, facts.released);
	if (call.verb == "repair")
		for (const Fields &row : call.rows)
			facts.repaired.push_back(
				{effect, row.text("id"), row.text("state"), row.text("lost_by"), row.number("no")});
	if (call.verb == "cancel" || call.verb == "break")
		(call.verb == "cancel" ? facts.cancelled : facts.broken)
			.push_back({effect, call.fields.text("id"), call.fields.text("reason"),
						call.rows.empty() ? 0 : call.rows[0].number("no")});
	if (call.verb == "reschedule")
		facts.rescheduled.push_back(
			{effect, call.fields.text("id"), call.rows.empty() ? 0 : call.rows[0].number("due")});
	if (call.verb == "cancel_many" || call.verb == "replay_many")
		(call.verb == "cancel_many" ? facts.cancelled_many : facts.replayed_many)
			.push_back({effect, call.fields.text("reason"), call.rows.empty() ? -1 : call.rows[0].number("done")});
	if (call.verb == "replayed")
		add_replayed_many(effect);
	if (call.verb == "replay")
		facts.replayed.push_back({effect, call.fields.text("id"), call.rows.empty() ? "" : call.rows[0].text("id")});
}

void
Collector::add_other(const Event &event)
{
	const Fields &f = event.fields;

	if (event.kind == "message")
		facts.messages[f.text("id")] = {f.text("id"),        f.text("tag"),     f.text("queue"),
										f.text("key"),       f.text("event"),   f.text("partition_key"),
										f.text("replay_of"), f.number("number")};
	else if (event.kind == "attempt")
		facts.attempts[f.text("id")].push_back({f.text("id"), f.text("state"), f.text("worker"), f.text("token"),
												f.text("reference"), f.text("error_code"), f.text("error_message"),
												f.number("no"), f.number("created_at")});
	else if (event.kind == "audit")
		facts.events.push_back(
			{f.text("event"), f.text("queue"), f.text("worker"), f.text("id"), f.text("replay"), f.number("no")});
	else if (event.kind == "audited")
		facts.audited.insert(f.text("queue"));
	else if (event.kind == "pending")
		facts.pending.insert(f.text("id"));
	else if (event.kind == "queue")
	{
		facts.ceilings[f.text("queue")] = f.number("max_attempts");
		if (f.text("ordering") == "fifo")
			facts.ordered.insert(f.text("queue"));
		if (f.text("on_dead_head") == "block")
			facts.blocking.insert(f.text("queue"));
		if (f.has("max_releases"))
			facts.most_releases[f.text("queue")] = f.number("max_releases");
		if (f.has("max_in_flight"))
			facts.most_leased[f.text("queue")] = f.number("max_in_flight");
	}
	else if (event.kind == "clock")
		facts.steps.push_back({event.at, f.number("from"), f.number("to")});
	else if (event.kind == "crash")
		facts.crashes.push_back({f.number("from"), event.at});
	else if (event.kind == "left")
		facts.left.push_back(event);
}

void
Collector::collect(const History &history)
{
	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
			add_call({&transaction, &call, outcome_of(transaction, call)});
	for (const Event &event : history.others)
		add_other(event);
	for (auto &[id, attempts] : facts.attempts)
		std::stable_sort(attempts.begin(), attempts.end(),
						 [](const Attempt &a, const Attempt &b) { return a.number < b.number; });
	for (Many &many : facts.cancelled_many)
		add_cancelled_many(many);
}

// ---- unknown outcomes

struct Traces {
	int present = 0;
	int missing = 0;
};

bool
has_reference(const Facts &facts, const Reported &report)
{
	auto found = facts.attempts.find(report.id);

	return found != facts.attempts.end() &&
		   std::any_of(found->second.begin(), found->second.end(),
					   [&](const Attempt &attempt) { return attempt.reference == report.reference; });
}

bool
has_reason(const Facts &facts, const Intervened &one)
{
	auto found = facts.attempts.find(one.id);

	return found != facts.attempts.end() &&
		   std::any_of(found->second.begin(), found->second.end(),
					   [&](const Attempt &attempt) { return attempt.error_message == one.reason; });
}

// What of the effects of transactions whose outcome is unknown is in the tables. Not there is
// a trace only of what would certainly be there.
std::map<const Transaction *, Traces>
traces_of(const Facts &facts)
{
	std::map<const Transaction *, Traces> traces;
	std::set<std::string> tags;
	auto note = [&](const Effect &effect, bool present, bool certain) {
		if (effect.outcome != Outcome::unknown)
			return;
		traces[effect.transaction].present += present;
		traces[effect.transaction].missing += !present && certain;
	};

	for (const auto &[id, message] : facts.messages)
		if (message.replay_of.empty())
			tags.insert(message.tag);
	for (const Enqueued &one : facts.enqueued)
		if (one.id.empty() || one.created)
			note(one, tags.count(one.tag) > 0, one.created);
	for (const Leased &one : facts.leased)
		note(one, facts.attempt_of_token(one.id, one.token) != nullptr, false);
	for (const Reported &one : facts.reported)
		note(one, has_reference(facts, one), one.accepted());
	for (const auto *list : {&facts.cancelled, &facts.broken})
		for (const Intervened &one : *list)
			note(one, has_reason(facts, one), one.number > 0);
	for (const Many &one : facts.cancelled_many)
		note(one, one.there > 0, one.told > 0);
	for (const Changed &one : facts.released)
	{
		const Attempt *attempt = facts.attempt_of_token(one.id, one.token);

		note(one, attempt != nullptr && attempt->released(), false);
	}
	for (const Replayed &one : facts.replayed)
		if (!one.replay.empty())
			note(one, facts.messages.count(one.replay) > 0, true);
	return traces;
}

template <typename List>
void
take_outcomes(List &effects)
{
	for (auto &effect : effects)
		effect.outcome = outcome_of(*effect.transaction, *effect.call);
}

void
resolve(Facts &facts, History &history)
{
	std::map<const Transaction *, Traces> traces = traces_of(facts);

	for (Transaction &transaction : history.transactions)
	{
		auto found = traces.find(&transaction);

		if (found == traces.end())
			continue;
		if (found->second.present > 0)
			transaction.outcome = Outcome::done;
		else if (found->second.missing > 0)
			transaction.outcome = Outcome::undone;
		if (found->second.present > 0 && found->second.missing > 0)
			facts.halves.push_back(&transaction);
	}
	take_outcomes(facts.enqueued);
	take_outcomes(facts.leased);
	take_outcomes(facts.reported);
	take_outcomes(facts.renewed);
	take_outcomes(facts.released);
	take_outcomes(facts.repaired);
	take_outcomes(facts.cancelled);
	take_outcomes(facts.broken);
	take_outcomes(facts.cancelled_many);
	take_outcomes(facts.replayed_many);
	take_outcomes(facts.rescheduled);
	take_outcomes(facts.replayed);
}

} // namespace

const Attempt *
Facts::attempt_of_token(const std::string &id, const std::string &token) const
{
	auto found = attempts.find(id);

	if (found != attempts.end())
		for (const Attempt &attempt : found->second)
			if (attempt.token == token)
				return &attempt;
	return nullptr;
}

const Attempt *
Facts::attempt_number(const std::string &id, int64_t number) const
{
	auto found = attempts.find(id);

	if (found != attempts.end())
		for (const Attempt &attempt : found->second)
			if (attempt.number == number)
				return &attempt;
	return nullptr;
}

int64_t
Facts::server_time(int64_t at) const
{
	int64_t ahead = 0;

	for (const ClockStep &step : steps)
		if (step.at <= at)
			ahead = step.to;
	return at + ahead;
}

// A process may have been stopped between two looks at the clock.
constexpr int64_t margin = 4000000;

bool
Facts::stepped_near(int64_t time) const
{
	return std::any_of(steps.begin(), steps.end(), [&](const ClockStep &step) {
		return step.from != step.to &&
			   (std::abs(time - step.from - step.at) < margin || std::abs(time - step.to - step.at) < margin);
	});
}

bool
Facts::stepped_during(const Call &call) const
{
	return std::any_of(steps.begin(), steps.end(), [&](const ClockStep &step) {
		return step.from != step.to && step.at > call.asked - margin && step.at - margin < call.answered;
	});
}

int64_t
Facts::earliest(int64_t at, int64_t time) const
{
	int64_t first = time - (server_time(at) - at);

	for (const ClockStep &step : steps)
		if (step.from != step.to && step.at + margin > at)
			first = std::min(first, step.at - margin);
	return first;
}

Facts
facts_of(History &history)
{
	Facts facts;

	Collector(facts).collect(history);
	resolve(facts, history);
	return facts;
}
