// Outcomes on their way into the ledger.
//
// Guarantees: an outcome stays here until the database has answered for it, whatever happens to the connection.
// Outcomes are gathered for at most 5 ms or 500 of them. Texts are made fit for PostgreSQL: valid UTF-8 without NUL. A
// statement that is refused as a whole because of its data is repeated in halves, so that one outcome that cannot be
// recorded stops no other.
#pragma once

#include "db/connection.h"
#include "flow/claims.h"

#include <deque>
#include <map>
#include <vector>

namespace relay {

struct Outcome {
	uint64_t number = 0;
	Uuid outbox_id{}, token{};
	Verdict verdict = Verdict::accepted;
	Answer answer;
	int64_t latency_ms = 0;
};

class Reports {
public:
	static constexpr size_t most = 500;
	static constexpr std::chrono::milliseconds gathering{5};

	void add(Outcome outcome, Clock::time_point now);
	[[nodiscard]] size_t size() const { return waiting.size() + sent_size; }
	[[nodiscard]] bool empty() const { return size() == 0; }

	// Whether to report now. While another report is under way, only a full one; `last`: there is nothing else to wait
	// for.
	[[nodiscard]] bool due(Clock::time_point now, bool last) const;
	[[nodiscard]] std::optional<Clock::time_point> due_at() const;

	// The next ones, under a number for the two calls below.
	uint64_t take();
	[[nodiscard]] const std::vector<Outcome> &of(uint64_t report) const { return sent.at(report); }
	// The database has answered for it.
	std::vector<Outcome> answered(uint64_t report);
	// It was not recorded: again, not before then; in halves if its data were refused. An outcome that is refused alone
	// loses its texts, then itself: it is returned.
	std::optional<Outcome> refused(uint64_t report, bool data, Clock::time_point not_before);
	// Whether what was sent was recorded is not known: again. The ledger tells.
	void disconnected();

private:
	std::deque<Outcome> waiting;
	std::map<uint64_t, std::vector<Outcome>> sent;
	size_t sent_size = 0, at_most = most;
	uint64_t last_report = 0;
	Clock::time_point oldest{}, after{};
};

// The arguments of complete_batch from worker_id on.
Parameters report_parameters(const std::string &worker_id, const std::vector<Outcome> &outcomes);

// Whether a report of it leads to that state. If not, a repair or an operator has ended its lease.
bool may_have_recorded(Verdict verdict, std::string_view state);

// Valid UTF-8 without NUL.
std::string clean(std::string_view text);

} // namespace relay
