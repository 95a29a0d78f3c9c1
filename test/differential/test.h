// What the differential test knows of a run: its sessions, each with one of the model beside it, the call that waits,
// and what the model is told. See differential.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <iosfwd>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "connection.h"

inline constexpr int session_count = 3;
// So many steps should meet every kind of outcome.
inline constexpr int enough_steps = 5000;

inline constexpr const char *levels[] = {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};

// A call that waits: sent to both sides, answered by neither.
struct Waiting {
	int session;
	Call call;
	int64_t sent_us;
	int64_t slack_us;
	std::set<int> blockers;

	bool is_for_key() const { return call.function.starts_with("enqueue") || call.function == "replay"; }
};

struct Session {
	Connection extension{"outbox differential: extension"};
	Connection model{"outbox differential: model"};
	int level = 0;            // of the open transaction
	int savepoints = 0;       // in it
	bool made_many = false;   // in it: by a call that has subtransactions of its own
	std::optional<Call> made; // the last call in it
	std::string last_id;      // ids of one session only grow
};

class Test {
public:
	Test(uint64_t seed, bool trace);

	void run(int steps);
	void report(std::ostream &out) const;
	std::vector<std::string> not_covered() const;
	int steps_done() const { return step_number; }
	std::string last_steps() const;

private:
	Random random;
	World world;
	bool trace;
	Connection observer{"outbox differential: observer"};
	Connection waits_observer{"outbox differential: waits"};
	std::array<Session, session_count> sessions;
	std::optional<Waiting> waiting;
	std::set<std::string> ids, tokens;
	int64_t widest_us = 0;     // window in which a clock was read
	int64_t step_began_us = 0; // this step
	int64_t quiet_us = 0;      // when there was no transaction open the last time
	int step_number = 0;
	std::string doubts = "'{}'";  // what the extension holds back until its key is settled, as the call began
	std::set<std::string> locked; // what the extension has locked, as of the last step
	std::deque<std::string> log;
	std::map<std::string, std::map<std::string, int>> counts;

	void set_up();
	void count_ledger();
	void step();
	void step_of(int number);
	void step_while_waiting();
	bool repeat_of_another(int number);
	void random_call_of(int number);
	void move();

	// Statements that are the same on both sides.
	void begin(int number);
	void control(int number, const std::string &sql);
	void end_transaction(int number, const std::string &sql);
	void call(int number, const Call &call);
	void wait(int number, const Call &call, int64_t sent_us, const std::set<int> &blockers);
	void tell_model(int number, const Call &call, const Answer &extension, int64_t sent_us, int64_t slack_us);
	Answer new_replays(int number);
	Answer model_answer(int number, const std::string &sql, const Answer &extension);
	std::optional<Answer> end_of_wait();
	void end_of_model_wait(const std::optional<Answer> &extension);
	void adopt_due_times(Connection &model, const Answer &extension, const Answer &rows);
	void rename_made_up(const Answer &extension, Answer &model);
	void adopt_due_times_of_batch(const Answer &extension);

	std::optional<std::set<int>> blockers_of(Connection &connection, bool is_model);
	bool ends(Connection &connection, bool is_model, std::set<int> *blockers);
	std::string doubts_of(Connection &of);
	void drop_ended_doubts(int number, const Call &call, const Answer &answer);
	void look_for_stranded(const Call &call, const Answer &answer);
	std::set<std::string> locked_in(const std::string &schema, const std::string &of = "");
	void adopt_locks(int number);
	void choose(int number, int64_t sent_us, int64_t slack_us, const Answer *answer, const Call *call);
	void learn(int number, const Call &call, const Answer &answer);
	void count(const Call &call, const Answer &answer, bool waited);
	int64_t clock();
	bool alone(int number) const;
	bool sees_its_own(int number) const; // in what it reads by SQL
	void remember_pending(const Answer &pending);
	void compare(int acting, bool everything);
	void compare_locks();
	bool is_settled(Connection &of);
	void note(const std::string &what);
	std::string name(int number) const;
};

// Many reports in one call: several may wait.
inline bool
is_batch_of_reports(const Call &call)
{
	return call.function == "complete_batch" || call.function == "complete_and_claim";
}

inline bool
is_of_many(const Call &call)
{
	return call.function == "cancel_many" || call.function == "replay_many" || call.function == "purge";
}
