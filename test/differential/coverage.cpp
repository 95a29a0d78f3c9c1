// What a run has met, and what it was doing.

#include <iostream>

#include "test.h"

namespace {

constexpr size_t steps_shown = 15;

// What one row of an answer means.
std::string
outcome(const Call &call, const Answer &answer, const Row &row)
{
	auto cell = [&](const char *column) -> Cell {
		int i = answer.column(column);

		return i < 0 ? Cell() : row[i];
	};

	if (cell("error"))
		return *cell("error") + (cell("recorded") ? " with what was recorded" : "");
	if (cell("created") == "f")
		return "duplicate";
	if (cell("created") && call.function == "enqueue_and_claim")
		return cell("lease_token") ? "leased" : "not leased";
	if (cell("created"))
		return cell("sequence_id") ? "created with a number" : "created";
	if (cell("recorded"))
		return *cell("recorded");
	if (call.function == "repair_expired_leases")
		return *cell("state");
	if (call.function == "claim" || cell("kind") == "claimed")
		return cell("attempt_count") == "0" ? "leased" : "leased after attempts";
	if (is_of_many(call) && cell("done") == "0")
		return cell("remaining") != "0" ? "remaining" : "skipped: " + *cell("why");
	return "done";
}

} // namespace

void
Test::count_ledger()
{
	Answer ledger = observer.must("SELECT state::text || coalesce(' ' || error_code, ''), count(*) "
								  "FROM outbox.attempts WHERE error_code IS NULL OR error_code "
								  "NOT LIKE 'E_' GROUP BY 1");

	for (const Row &row : ledger.rows)
		counts["ledger"][*row[0]] = std::stoi(*row[1]);
}

std::string
Test::name(int number) const
{
	const Session &session = sessions[number];

	return "session " + std::to_string(number + 1) +
		   (session.extension.in_transaction() ? " in " + std::string(levels[session.level]) : "");
}

void
Test::note(const std::string &what)
{
	log.push_back("step " + std::to_string(step_number) + ", " + what);
	if (log.size() > steps_shown)
		log.pop_front();
	if (trace)
		std::cout << "# " << log.back() << std::endl;
}

std::string
Test::last_steps() const
{
	std::string text;

	for (const std::string &line : log)
		text += line + "\n";
	return text;
}

void
Test::count(const Call &call, const Answer &answer, bool waited)
{
	auto &of_function = counts[call.function];
	int error = answer.column("error");
	std::vector<std::string> outcomes;
	std::string suffix = waited ? " after a wait" : "";

	of_function["calls"]++;
	if (!answer.ok())
		counts["error"][answer.sqlstate]++;
	for (const Row &row : answer.rows)
		if (error >= 0 && row[error])
			counts["error"][*row[error]]++;
	if (call.is_bad && answer.sqlstate != "25P02")
	{
		of_function["refused"]++;
		counts["bad argument"][answer.sqlstate]++;
		return;
	}
	if (!answer.ok())
		outcomes.push_back(answer.sqlstate);
	else if (answer.rows.empty())
		outcomes.push_back("no row");
	for (const Row &row : answer.rows)
		outcomes.push_back(outcome(call, answer, row));
	for (const std::string &what : outcomes)
	{
		of_function[what + suffix]++;
		if (waited)
			counts["after a wait"][what]++;
	}
}

void
Test::report(std::ostream &out) const
{
	for (const auto &[kind, outcomes] : counts)
	{
		out << "# " << kind << ":";
		for (const auto &[what, n] : outcomes)
			out << (what == outcomes.begin()->first ? " " : ", ") << what << " " << n;
		out << "\n";
	}
	out << "# the clock was read within " << widest_us << " us at most\n";
}

// What a run of thousands of steps must have met, or it proves less than it says.
std::vector<std::string>
Test::not_covered() const
{
	static const std::map<std::string, std::vector<std::string>> wanted = {
		{"enqueue", {"created", "created with a number", "duplicate", "refused"}},
		{"enqueue_batch", {"created", "created with a number", "duplicate", "refused"}},
		{"enqueue_and_claim", {"leased", "not leased", "duplicate", "refused"}},
		{"claim", {"leased", "leased after attempts", "no row", "refused"}},
		{"complete", {"DISPATCHED", "FAILED", "RETRYABLE", "P7002", "P7003", "refused"}},
		{"complete_batch",
		 {"DISPATCHED", "FAILED", "RETRYABLE", "P7002", "P7002 with what was recorded", "P7003", "22004", "22023",
		  "refused"}},
		{"complete_and_claim",
		 {"DISPATCHED", "FAILED", "RETRYABLE", "P7002", "P7002 with what was recorded", "leased",
		  "leased after attempts", "no row", "refused"}},
		{"renew", {"done", "P7002", "55P03", "22004", "refused"}},
		{"release", {"done", "P7002", "55P03", "22004", "refused"}},
		{"repair_expired_leases", {"ZOMBIE_REQUEUE", "FAILED", "no row", "refused"}},
		{"cancel", {"done", "55006", "P7005", "refused"}},
		{"cancel_many", {"done", "remaining", "skipped: leased", "no row", "refused"}},
		{"replay_many", {"done", "remaining", "skipped: a replay", "no row", "refused"}},
		{"purge", {"done", "remaining", "skipped: leased", "no row", "refused"}},
		{"break_lease", {"done", "55000", "P7005", "refused"}},
		{"reschedule", {"done", "55006", "P7005", "refused"}},
		{"replay", {"done", "P7005", "refused"}},
		{"unblock", {"done", "P7005", "refused"}},
		{"create_queue", {"done", "42710", "refused"}},
		{"alter_queue", {"done", "refused"}},
		{"drop_queue", {"done", "P7004"}},
		{"pause", {"done"}},
		{"resume", {"done"}},
		{"backoff", {"done"}},
		{"after a wait", {"created", "created with a number", "duplicate", "P7002", "done"}},
		{"bad argument", {"22004", "22023", "P7004"}},
		{"error", {"P7001", "P7002", "P7003", "P7004", "P7005", "22004", "22023", "42710", "55006", "55P03"}},
		{"transaction",
		 {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "COMMIT", "ROLLBACK", "ROLLBACK TO SAVEPOINT"}},
		{"ledger",
		 {"DISPATCHED", "FAILED CANCELLED", "FAILED LEASE_EXPIRED", "FAILED LEASE_BROKEN", "FAILED RETRIES_EXHAUSTED",
		  "ZOMBIE_REQUEUE LEASE_BROKEN", "RETRYABLE RELEASES_EXHAUSTED", "FAILED RELEASES_EXHAUSTED",
		  "ZOMBIE_REQUEUE LEASE_EXPIRED"}},
	};
	std::vector<std::string> missing;

	for (const auto &[kind, outcomes] : wanted)
		for (const std::string &what : outcomes)
			if (!counts.contains(kind) || !counts.at(kind).contains(what))
				missing.push_back(kind + ": " + what);
	return missing;
}
