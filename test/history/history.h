// The history of a run: what each client asked, what it was told, and when.
//
// One line an event: microseconds, client, number of its transaction, kind, then name=value,
// separated by tabs. A client writes what it is about to ask before it asks, in one write();
// so a client that is killed leaves behind all that it may have done. The tables are lines of
// the same kind at the end, so that a file of them is all that the checks need.
//
// | kind | fields | meaning |
// |---|---|---|
// | begin | auto, async | a transaction begins; auto: it is its one call; async: outbox.async_claim
// | | call | n, verb, ... | is about to be asked | | item | n, ... | of a call that takes several |
// | row | n, ... | of the answer |
// | ok, error | n, sqlstate | the call has answered |
// | undone | from | rolled back to a savepoint: the calls from this one on |
// | commit, rollback, prepare | gid | is about to be asked |
// | ended | as | committed, rolledback, prepared, error |
//
// What follows none of these (fault, clock, queue, stats, left, message, attempt, audited, audit, pending)
// stands for itself.
#pragma once

#include <cstdint>
#include <istream>
#include <limits>
#include <map>
#include <string>
#include <vector>

constexpr int64_t never = std::numeric_limits<int64_t>::max();

struct Fields : std::map<std::string, std::string> {
	using map::map;

	bool has(const std::string &name) const { return count(name) > 0; }
	std::string text(const std::string &name) const { return has(name) ? at(name) : ""; }
	int64_t number(const std::string &name) const { return has(name) ? std::stoll(at(name)) : 0; }
};

struct Event {
	int64_t at = 0;
	std::string client;
	int transaction = 0;
	std::string kind;
	Fields fields;
};

std::string line_of(const Event &event); // with its newline
Event event_of(const std::string &line); // throws

// Of the system's clock: the server's, where nobody steps it.
int64_t now_us();

// Whether something took effect. unknown: the answer did not arrive.
enum class Outcome { done, undone, unknown };

struct Call {
	int number = 0;
	std::string verb;
	Fields fields;
	std::vector<Fields> items;
	std::vector<Fields> rows;
	int64_t asked = 0;
	int64_t answered = never;
	std::string sqlstate; // of its error
	bool undone = false;  // by ROLLBACK TO

	bool ok() const { return answered != never && sqlstate.empty(); }
};

struct Transaction {
	std::string client;
	int number = 0;
	bool automatic = false;
	bool async = false;
	std::vector<Call> calls;
	std::string gid;
	int64_t commit_asked = never; // when its effects may first have been seen
	int64_t ended = never;        // when they were certain
	std::string ended_as;
	std::string end_sqlstate;
	Outcome outcome = Outcome::undone;

	std::string name() const { return client + "/" + std::to_string(number); }
};

// What a call's effect is worth.
inline Outcome
outcome_of(const Transaction &transaction, const Call &call)
{
	return call.undone || !call.sqlstate.empty() ? Outcome::undone : transaction.outcome;
}

struct History {
	std::vector<Transaction> transactions;
	std::vector<Event> others; // what is no transaction's
};

// Events in any order of clients, each client's in its own order.
History history_of(const std::vector<Event> &events);
std::vector<Event> read_events(std::istream &in);
