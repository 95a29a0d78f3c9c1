// The differential test: random calls, the same to the extension and to the model of
// reference.sql, by several sessions whose transactions overlap; after each step answers,
// tables, and which pending rows are locked must agree.
//
//   differential            environment: SEED, STEPS, TRACE=1 prints each step, and what
//                           libpq reads (PGDATABASE: outbox and the model are in it)
//
// What it proves: the extension does what the contract's plain reading says, for whatever
// sequence comes up: in transactions, after rollbacks and savepoints, in all isolation
// levels, and between sessions that hold each other's rows and keys.
//
// Sessions take turns: a step is one statement of one session. If the extension's session
// has to wait for another, which pg_blocking_pids tells, then the model's must wait for
// the same one; others go on until the wait ends, and then both must have ended. So
// waits are real, but in an order that the seed decides.
//
// Where transactions met in an ordered key, the extension leaves a mark, and until the key is settled it may hold back
// a message whose turn has come. The model knows no marks. It is told which messages these are, and takes each of them
// as the extension does; but only as long as a mark stands, and none does after a claim while no transaction is open.
//
// Avoided by construction:
// - more than one session waiting at a time, and calls that may wait while one does: who
//   comes first, or is the victim of a deadlock, would be chance;
// - both an idempotency_key and an event_id in one message while other transactions are
//   open: which of the two is waited for first is nobody's promise;
// - cancel_many, replay_many and purge while another transaction is open: what they then pass by is for test/specs;
// - rolling back to a savepoint while another session waits for a row: whether PostgreSQL
//   wakes that session then, or when the transaction ends, depends on subtransactions
//   within the calls; likewise for a key, after a call for many messages;
// - several rows that become due at once in a transaction above READ COMMITTED: in which
//   order they fell due cannot be looked at before its COMMIT;
// - an ordered message that ends by hand: its key would stay as it is;
// - moments close to each other: leases and delays last hours or nothing, and what time
//   does is done by hand, with an UPDATE of both sides (calls.h).

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>

#include "calls.h"
#include "compare.h"
#include "connection.h"

namespace {

constexpr int session_count = 3;
constexpr int steps_between_full_comparisons = 250;
constexpr int patience_ms = 60000;
constexpr size_t steps_shown = 15;

constexpr const char *levels[] = {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};
// For calls outside a transaction block, and so that no time depends on the zone.
constexpr const char *zones[] = {"UTC", "Europe/Berlin", "America/New_York"};

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

// So many steps should meet every kind of outcome.
constexpr int enough_steps = 5000;

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

Test::Test(uint64_t seed, bool trace) : random(seed), trace(trace)
{
	world.began_us = quiet_us = clock();
	for (int i = 0; i < session_count; i++)
	{
		std::string set =
			"SET TimeZone = " + quoted(zones[i]) + "; SET default_transaction_isolation = " + quoted(levels[i]);

		sessions[i].extension.must(set);
		sessions[i].model.must("SET TimeZone = 'UTC'; SET model.session = " + std::to_string(i));
		observer.must("INSERT INTO model.choices VALUES (" + std::to_string(i) + ")");
	}
	observer.must("SET synchronous_commit = off");
}

// ---- the clock, waits, and what the model is told

int64_t
Test::clock()
{
	return parse_time(*observer.must("SELECT clock_timestamp()").rows[0][0]);
}

// The sessions of the same side that this one waits for.
std::optional<std::set<int>>
Test::blockers_of(Connection &connection, bool is_model)
{
	Answer answer = waits_observer.must("SELECT unnest(pg_blocking_pids(" + std::to_string(connection.pid()) + "))");
	std::set<int> blockers;

	for (const Row &row : answer.rows)
		for (int i = 0; i < session_count; i++)
		{
			Connection &other = is_model ? sessions[i].model : sessions[i].extension;

			if (std::to_string(other.pid()) == *row[0])
				blockers.insert(i);
		}
	if (blockers.empty())
		return std::nullopt;
	return blockers;
}

// True: the answer is there. False: it waits for another session.
bool
Test::ends(Connection &connection, bool is_model, std::set<int> *blockers)
{
	constexpr int look_every_ms = 3;

	for (int waited_ms = 0; waited_ms < patience_ms; waited_ms += look_every_ms)
	{
		if (connection.ready(look_every_ms))
			return true;
		if (auto found = blockers_of(connection, is_model))
		{
			*blockers = *found;
			return false;
		}
	}
	throw std::runtime_error("no answer, and no session that it waits for");
}

// Many reports in one call: several may wait.
bool
is_batch_of_reports(const Call &call)
{
	return call.function == "complete_batch" || call.function == "complete_and_claim";
}

bool
is_of_many(const Call &call)
{
	return call.function == "cancel_many" || call.function == "replay_many" || call.function == "purge";
}

// Of the rows that tell of a choice.
std::string
as_uuid_array(const Answer *answer, const std::string &column)
{
	int i = answer != nullptr && answer->ok() ? answer->column(column) : -1;
	int kind = i < 0 ? -1 : answer->column("kind");
	std::string text;

	if (i < 0)
		return "NULL";
	for (const Row &row : answer->rows)
		if (kind < 0 || row[kind] == "claimed")
			text += (text.empty() ? "" : ",") + (row[i] ? quoted(*row[i]) : std::string("NULL"));
	return "ARRAY[" + text + "]::uuid[]";
}

void
Test::choose(int number, int64_t sent_us, int64_t slack_us, const Answer *answer, const Call *call)
{
	std::string id_column = call != nullptr && call->function.starts_with("replay") ? "replay" : "outbox_id";

	observer.must("UPDATE model.choices SET call_at = " + quoted(format_time(sent_us)) + ", slack = " +
				  std::to_string(slack_us) + " * interval '1 microsecond', ids = " + as_uuid_array(answer, id_column) +
				  ", tokens = " + as_uuid_array(answer, "lease_token") + ", held_back = " + doubts +
				  " WHERE session = " + std::to_string(number));
}

// Ids and tokens must be new; later calls are made of them.
void
Test::learn(int number, const Call &call, const Answer &answer)
{
	if (!answer.ok())
		return;

	bool is_replay = call.function.starts_with("replay");
	int id = answer.column(is_replay ? "replay" : "outbox_id");
	int created = answer.column("created");
	int token = answer.column("lease_token");
	std::string worker;

	for (const auto &[name, value] : call.arguments)
		if (name == "worker_id")
			worker = value.substr(1, value.size() - 2);
	for (size_t quote; (quote = worker.find("''")) != std::string::npos;)
		worker.erase(quote, 1);
	for (const Row &row : answer.rows)
	{
		if (is_replay || (created >= 0 && row[created] == "t"))
		{
			const std::string &made = *row[id];

			if (!ids.insert(made).second)
				throw Disagreement{"the id " + made + " is not new"};
			if (made[14] != '7')
				throw Disagreement{"the id " + made + " is no UUIDv7"};
			if (made <= sessions[number].last_id)
				throw Disagreement{"the id " + made + " is not greater than " + sessions[number].last_id +
								   ", made before in this session"};
			sessions[number].last_id = made;
			world.add_message(made);
		}
		if (token >= 0 && row[token])
		{
			if (!tokens.insert(*row[token]).second)
				throw Disagreement{"the token " + *row[token] + " is not new"};
			world.add_lease(*row[id], *row[token], worker);
		}
	}
}

// ---- order within a key

bool
Test::sees_its_own(int number) const
{
	const Session &session = sessions[number];

	return session.extension.in_transaction() && !session.extension.in_failed_transaction() && session.level == 0;
}

std::string
Test::doubts_of(Connection &of)
{
	return "ARRAY[" +
		   *of.must("SELECT coalesce(string_agg(quote_literal(p.outbox_id), ','), '') FROM outbox.pending p WHERE "
					"p.held_back AND EXISTS (SELECT FROM outbox.key_marks m WHERE m.queue = p.queue AND "
					"m.partition_key = p.partition_key AND m.kind = 'drained')")
				.rows[0][0] +
		   "]::uuid[]";
}

// A claim settles the keys that it meets. What it was in doubt of it may end instead of leasing it; a report before it
// ends what stands back. A look from a SERIALIZABLE transaction might make that fail.
void
Test::drop_ended_doubts(int number, const Call &call, const Answer &answer)
{
	const Session &session = sessions[number];
	std::string reported = "'{}'";

	if (!answer.ok() || (session.extension.in_transaction() && session.level == 2) ||
		(call.function != "claim" && call.function != "complete_and_claim"))
		return;
	for (const auto &[name, value] : call.arguments)
		if (name == "outbox_ids")
			reported = value;
	doubts = "ARRAY[" +
			 *sessions[number]
				  .extension
				  .must("SELECT coalesce(string_agg(quote_literal(id), ','), '') FROM unnest(" + doubts +
						"::uuid[]) id WHERE id = ANY (" + reported +
						") OR EXISTS (SELECT FROM outbox.pending p WHERE p.outbox_id = id)")
				  .rows[0][0] +
			 "]::uuid[]";
}

// When no transaction is open, a claim settles all keys of its queues.
void
Test::look_for_stranded(const Call &call, const Answer &answer)
{
	if (!answer.ok() || !alone(-1) || (call.function != "claim" && call.function != "complete_and_claim"))
		return;
	for (const auto &[name, value] : call.arguments)
		if (name == "queues" &&
			*observer
					.must("SELECT count(*) FROM outbox.key_marks m JOIN outbox.queues q USING (queue) "
						  "WHERE NOT q.paused AND m.kind = 'drained' AND queue = ANY (" +
						  value + ")")
					.rows[0][0] != "0")
			throw Disagreement{"keys are left to be settled after a claim"};
}

// The rows that a transaction holds, also of sessions whose view may not be looked at.
std::set<std::string>
Test::locked_in(const std::string &schema, const std::string &of)
{
	std::set<std::string> found;

	for (const Row &row :
		 observer
			 .must("SELECT p.outbox_id FROM pgrowlocks('" + schema + ".pending') l JOIN " + schema +
				   ".pending p ON p.ctid = l.locked_row" + (of.empty() ? "" : " WHERE p.outbox_id = ANY (" + of + ")"))
			 .rows)
		found.insert(*row[0]);
	return found;
}

// A claim settles keys that it takes nothing of: it lets the first of the key pass, and holds its row.
void
Test::adopt_locks(int number)
{
	if (!sessions[number].model.in_transaction() || sessions[number].model.in_failed_transaction())
		return;
	for (const std::string &id : locked_in("outbox", doubts))
		if (!locked.contains(id))
			sessions[number].model.must("SELECT model.try_lock(" + quoted(id) + ")");
}

// ---- one call

void
Test::call(int number, const Call &call)
{
	Connection &extension = sessions[number].extension;
	std::set<int> blockers;
	int64_t sent_us = clock();

	note(name(number) + ": " + call.sql("outbox"));
	doubts = doubts_of(sees_its_own(number) ? extension : observer);
	extension.send(call.sql("outbox"));
	if (!ends(extension, false, &blockers))
	{
		wait(number, call, sent_us, blockers);
		return;
	}

	Answer answer = extension.receive();
	int64_t slack_us = clock() - sent_us;
	if (call.function == "enqueue_and_claim" && answer.ok())
		doubts = doubts_of(sees_its_own(number) ? extension : observer);
	drop_ended_doubts(number, call, answer);
	// An error ends what others wait for as well as a COMMIT does.
	std::optional<Answer> waited = end_of_wait();

	widest_us = std::max(widest_us, slack_us);
	tell_model(number, call, answer, sent_us, slack_us);
	compare_answers(answer, model_answer(number, call.sql("model"), answer), widest_us);
	adopt_locks(number);
	count(call, answer, false);
	sessions[number].made = call;
	sessions[number].made_many = sessions[number].made_many || is_of_many(call);
	end_of_model_wait(waited);
	look_for_stranded(call, answer);
}

// What the model has to know of the extension's answer.
void
Test::tell_model(int number, const Call &call, const Answer &extension, int64_t sent_us, int64_t slack_us)
{
	if (call.is_bad && extension.ok())
		throw Disagreement{"this should have been refused: " + shown(extension)};
	Answer made = call.function == "replay_many" && extension.ok() ? new_replays(number) : extension;

	learn(number, call, made);
	choose(number, sent_us, slack_us, &made, &call);
}

// replay_many does not tell the ids of the new messages.
Answer
Test::new_replays(int number)
{
	Answer made = sessions[number].extension.must("SELECT replay_id AS replay FROM outbox.replays ORDER BY replay_id");

	std::erase_if(made.rows, [&](const Row &row) { return ids.contains(*row[0]); });
	return made;
}

Answer
Test::model_answer(int number, const std::string &sql, const Answer &extension)
{
	Connection &model = sessions[number].model;
	std::set<int> blockers;

	model.send(sql);
	if (!ends(model, true, &blockers))
		throw Disagreement{"the model waits, the extension does not: " + shown(extension)};
	return model.receive();
}

// The extension waits: then the model must.
void
Test::wait(int number, const Call &call, int64_t sent_us, const std::set<int> &blockers)
{
	Connection &model = sessions[number].model;
	std::set<int> model_blockers;
	// What a producer writes carries the time of its call. Workers report as of the moment
	// when they have got the row, a batch of them some time until it ends.
	int64_t slack_us = is_batch_of_reports(call) ? patience_ms * 1000LL : clock() - sent_us;

	if (!is_batch_of_reports(call))
		widest_us = std::max(widest_us, slack_us);
	choose(number, sent_us, slack_us, nullptr, nullptr);
	model.send(call.sql("model"));
	if (ends(model, true, &model_blockers))
		throw Disagreement{"the extension waits, the model does not: " + shown(model.receive())};
	// A batch wants several, in an order of its own.
	if (call.function != "enqueue_batch" && !is_batch_of_reports(call) && model_blockers != blockers)
		throw Disagreement{"extension and model wait for different sessions"};
	waiting = Waiting{number, call, sent_us, slack_us, blockers};
	note(name(number) + " waits");
}

// After a statement of another session: has the extension's wait ended?
std::optional<Answer>
Test::end_of_wait()
{
	if (!waiting || !ends(sessions[waiting->session].extension, false, &waiting->blockers))
		return std::nullopt;

	Answer answer = sessions[waiting->session].extension.receive();

	doubts = doubts_of(observer);
	drop_ended_doubts(waiting->session, waiting->call, answer);

	static const std::set<std::string> of_one_row = {"complete", "cancel", "break_lease", "reschedule"};

	if (of_one_row.contains(waiting->call.function))
	{
		waiting->sent_us = step_began_us;
		waiting->slack_us = clock() - step_began_us;
	}
	// Its claim was made at the end of the wait.
	if (waiting->call.function == "complete_and_claim")
	{
		waiting->sent_us = step_began_us;
		widest_us = std::max(widest_us, clock() - step_began_us);
	}
	tell_model(waiting->session, waiting->call, answer, waiting->sent_us, waiting->slack_us);
	return answer;
}

// ... and then, after the same statement of the model, the model's must have ended too.
void
Test::end_of_model_wait(const std::optional<Answer> &extension)
{
	if (!waiting)
		return;

	Connection &model = sessions[waiting->session].model;
	std::set<int> blockers;
	bool has_ended = ends(model, true, &blockers);

	if (has_ended && !extension)
		throw Disagreement{"the model's wait has ended, the extension's goes on: " + shown(model.receive())};
	if (extension && !has_ended)
		throw Disagreement{"the extension's wait has ended, the model's goes on: " + shown(*extension)};
	if (!has_ended)
		return;
	note(name(waiting->session) + " has waited: " + waiting->call.function);

	Answer answer = model.receive();

	if (waiting->call.function == "enqueue_batch")
		rename_made_up(*extension, answer);
	compare_answers(*extension, answer, std::max(widest_us, waiting->slack_us));
	count(waiting->call, *extension, true);
	if (extension->ok() && is_batch_of_reports(waiting->call))
		adopt_due_times_of_batch(*extension);
	adopt_locks(waiting->session);
	waiting.reset();
}

void
Test::rename_made_up(const Answer &extension, Answer &model)
{
	int id = model.column("outbox_id");

	for (size_t i = 0; i < std::min(extension.rows.size(), model.rows.size()); i++)
	{
		Cell made_up = model.rows[i][id], chosen = extension.rows[i][id];

		if (made_up == chosen || ids.contains(*made_up))
			continue;
		sessions[waiting->session].model.must("SELECT model.rename(" + quoted(*made_up) + ", " + quoted(*chosen) + ")");
		for (Row &row : model.rows)
			if (row[id] == made_up)
				row[id] = chosen;
	}
}

// Rows of one call fall due one after the other, but in the model in the same moment. What
// has been compared gets the extension's moments, so that later claims find its order; not
// what another session holds.
void
Test::adopt_due_times(Connection &model, const Answer &extension, const Answer &rows)
{
	int due = extension.column("next_attempt_at"), due_in_model = rows.column("next_attempt_at");
	int id = rows.column("outbox_id");
	std::string values;

	for (size_t i = 0; i < rows.rows.size(); i++)
	{
		const std::string &moment = *extension.rows[i][due];

		if (parse_time(moment) != parse_time(*rows.rows[i][due_in_model]))
			values += (values.empty() ? "(" : ", (") + quoted(*rows.rows[i][id]) + "::uuid, " + quoted(moment) +
					  "::timestamptz)";
	}
	if (!values.empty())
		model.must("UPDATE model.pending p SET next_attempt_at = v.due FROM (VALUES " + values +
				   ") v(id, due) WHERE p.outbox_id IN (SELECT q.outbox_id FROM model.pending q "
				   "WHERE q.outbox_id = v.id FOR UPDATE SKIP LOCKED)");
}

// What a batch that waited rescheduled is due at a moment within the wait; that was checked.
// Which moment matters to later claims: the model takes the extension's.
void
Test::adopt_due_times_of_batch(const Answer &extension)
{
	int due = extension.column("next_attempt_at");
	int id = extension.column("outbox_id");

	for (const Row &row : extension.rows)
		if (row[due])
			sessions[waiting->session].model.must("UPDATE model.pending SET next_attempt_at = " + quoted(*row[due]) +
												  " WHERE outbox_id = " + quoted(*row[id]));
}

// ---- transactions

void
Test::begin(int number)
{
	Session &session = sessions[number];

	session.level = random.weighted({50, 30, 20});
	session.savepoints = 0;
	session.made.reset();
	session.made_many = false;
	note(name(number) + ": BEGIN ISOLATION LEVEL " + levels[session.level]);
	session.extension.must(std::string("BEGIN ISOLATION LEVEL ") + levels[session.level]);
	session.model.must("BEGIN ISOLATION LEVEL READ COMMITTED");
	if (session.level > 0)
	{
		// The snapshot is taken here, so that what others commit from now on is not in it.
		session.extension.must("SELECT pg_current_snapshot()");
		session.model.must("SELECT set_config('model.snapshot', pg_current_snapshot()::text, true)");
	}
	counts["transaction"][levels[session.level]]++;
}

void
Test::control(int number, const std::string &sql)
{
	note(name(number) + ": " + sql);

	Answer extension = sessions[number].extension.run(sql);
	std::optional<Answer> waited = end_of_wait();

	compare_answers(extension, model_answer(number, sql, extension), 0);
	end_of_model_wait(waited);
	counts["transaction"][sql.substr(0, sql.find(" s"))]++;
}

// PostgreSQL frees what was locked behind a savepoint before it ends the transaction: a session that waits would go on
// in between, where other rows still look locked. So savepoints are released first.
void
Test::end_transaction(int number, const std::string &sql)
{
	Session &session = sessions[number];
	bool failed = session.extension.in_failed_transaction();

	if (waiting && session.savepoints > 0 && (failed || sql == "ROLLBACK"))
	{
		if (failed)
			control(number, "ROLLBACK TO SAVEPOINT s" + std::to_string(session.savepoints));
		control(number, "RELEASE SAVEPOINT s1");
	}
	control(number, sql);
}

// ---- steps

bool
Test::alone(int number) const
{
	for (int i = 0; i < session_count; i++)
		if (i != number && sessions[i].extension.in_transaction())
			return false;
	return true;
}

// The same call that another session has made in its open transaction: the same key, token
// or message.
bool
Test::repeat_of_another(int number)
{
	for (int other = 0; other < session_count; other++)
	{
		Session &session = sessions[other];

		if (waiting || other == number || !session.made || !session.extension.in_transaction())
			continue;

		// Not what a session at its level could not have made itself.
		std::string sql = session.made->sql("outbox");
		bool has_two_keys =
			sql.find("idempotency_key") != std::string::npos && sql.find("event_id") != std::string::npos;
		bool frees_several = is_batch_of_reports(*session.made) || session.made->function == "release" ||
							 session.made->function == "repair_expired_leases";

		// Not what only a session that was alone may do: see random_complete_and_claim.
		bool frees_at_once =
			session.made->function == "complete_and_claim" && sql.find("RETRYABLE") != std::string::npos;

		if (has_two_keys || frees_at_once || is_of_many(*session.made) || (frees_several && sessions[number].level > 0))
			continue;
		call(number, *session.made);
		return true;
	}
	return false;
}

void
Test::random_call_of(int number)
{
	Session &session = sessions[number];

	call(number, random_call(random, world,
							 {.alone = alone(number),
							  .may_wait = !waiting,
							  .is_unobservable = session.extension.in_transaction() && session.level > 0}));
}

void
Test::step_of(int number)
{
	Session &session = sessions[number];
	Connection &extension = session.extension;

	if (!extension.in_failed_transaction() && random.chance(20) && repeat_of_another(number))
		return;
	if (!extension.in_transaction())
	{
		if (random.chance(35))
			begin(number);
		else
			random_call_of(number);
		return;
	}
	if (extension.in_failed_transaction() && random.chance(90))
	{
		if (session.savepoints > 0 && random.chance(75))
			control(number, "ROLLBACK TO SAVEPOINT s" + std::to_string(session.savepoints));
		else
			end_transaction(number, "ROLLBACK");
		return;
	}
	switch (random.weighted(
		{14, 6, session.savepoints < 2 ? 8 : 0, session.savepoints > 0 ? 8 : 0, session.savepoints > 0 ? 3 : 0, 65}))
	{
		case 0:
			end_transaction(number, "COMMIT");
			break;
		case 1:
			end_transaction(number, "ROLLBACK");
			break;
		case 2:
			control(number, "SAVEPOINT s" + std::to_string(session.savepoints + 1));
			if (!extension.in_failed_transaction())
				session.savepoints++;
			break;
		case 3:
			// To any of them: those after it are gone.
			session.savepoints = random.between(1, session.savepoints);
			control(number, "ROLLBACK TO SAVEPOINT s" + std::to_string(session.savepoints));
			break;
		case 4:
			control(number, "RELEASE SAVEPOINT s" + std::to_string(session.savepoints));
			if (!extension.in_failed_transaction())
				session.savepoints--;
			break;
		default:
			random_call_of(number);
	}
}

void
Test::step_while_waiting()
{
	int number = random.below(session_count);
	bool is_blocker = waiting->blockers.contains(number);
	int savepoints = sessions[number].savepoints;

	if (number == waiting->session)
		return step_while_waiting();
	if (is_blocker && (!waiting->is_for_key() || sessions[number].made_many) && (savepoints > 0 || random.chance(50)))
		end_transaction(number, random.chance(60) ? "COMMIT" : "ROLLBACK");
	else if (!is_blocker || !random.chance(50))
		step_of(number);
	else if (savepoints > 0 && random.chance(50))
		control(number, "ROLLBACK TO SAVEPOINT s" + std::to_string(savepoints));
	else
		end_transaction(number, random.pick({"COMMIT", "ROLLBACK"}));
}

void
Test::move()
{
	Move move = random_move(random, world, clock());
	auto on = [&](const std::string &schema) {
		std::string sql = move.sql;

		for (size_t at; (at = sql.find("{s}")) != std::string::npos;)
			sql.replace(at, 3, schema);
		return observer.must(sql);
	};

	note("by hand: " + move.kind);

	Answer extension = on("outbox");
	Answer model = on("model");

	// A row that another session has locked is passed by.
	if (extension.affected != model.affected)
		throw Disagreement{move.sql + "\nrows of the extension: " + std::to_string(extension.affected) +
						   "\nrows of the model: " + std::to_string(model.affected)};
	counts["by hand"][move.kind + (extension.affected > 0 ? "" : ": none")]++;
}

void
Test::step()
{
	int acting = -1;

	step_number++;
	step_began_us = clock();
	if (random.chance(14))
		move();
	else if (waiting)
		step_while_waiting();
	else
	{
		acting = random.below(session_count);
		step_of(acting);
	}
	compare(acting, step_number % steps_between_full_comparisons == 0);
	if (!waiting && alone(-1))
		quiet_us = clock();
}

void
Test::remember_pending(const Answer &pending)
{
	int id = pending.column("outbox_id"), lease = pending.column("lease_token"), queue = pending.column("queue"),
		number = pending.column("sequence_id"), held_back = pending.column("held_back");

	world.pending.clear();
	world.leased.clear();
	world.heads.clear();
	for (const Row &row : pending.rows)
	{
		world.pending.push_back(*row[id]);
		if (row[lease])
			world.leased.push_back(*row[id]);
		if ((row[queue] == "ordered" || row[queue] == "blocking") && row[number] && row[held_back] == "f")
			world.heads.push_back(*row[id]);
	}
}

// A row that is held on one side only would be passed by, or waited for, on that side only.
void
Test::compare_locks()
{
	std::set<std::string> of_model = locked_in("model");

	locked = locked_in("outbox");
	for (const auto &[some, others, where] : {std::tuple{locked, of_model, "extension"}, {of_model, locked, "model"}})
		for (const std::string &id : some)
			if (!others.contains(id))
				throw Disagreement{"locks differ: " + id + " is held only in the " + where};
}

// No key is in doubt: the views count what waits, also because of a doubt.
bool
Test::is_settled(Connection &of)
{
	return of.must("SELECT FROM outbox.key_marks WHERE kind = 'drained'").rows.empty();
}

// What everybody sees, and what the acting session sees of its own.
void
Test::compare(int acting, bool everything)
{
	everything = everything && is_settled(observer);

	// No call spans a quiet moment: what is older is so on both sides, and was compared.
	std::string since = everything ? "-infinity" : format_time(quiet_us);
	std::vector<std::string> extension = table_queries("outbox", everything);
	std::vector<std::string> model = table_queries("model", everything);
	std::vector<std::string> both = extension;

	both.insert(both.end(), model.begin(), model.end());

	std::vector<Answer> seen = observer.must_all(both, since);
	std::vector<Answer> seen_of_model(seen.begin() + static_cast<long>(extension.size()), seen.end());

	seen.resize(extension.size());
	compare_tables(seen, seen_of_model, "everybody");
	adopt_due_times(observer, seen[0], seen_of_model[0]);
	compare_locks();

	remember_pending(seen[0]);
	world.blocks.clear();
	for (const Row &row : seen[3].rows)
		world.blocks.push_back(
			{*row[seen[3].column("outbox_id")], *row[seen[3].column("queue")], *row[seen[3].column("partition_key")]});

	// Not above READ COMMITTED: there the tables show an old snapshot, and SERIALIZABLE
	// would turn this very reading into conflicts.
	if (acting < 0 || (waiting && waiting->session == acting))
		return;

	Session &session = sessions[acting];

	if (!sees_its_own(acting))
		return;
	if (everything && !is_settled(session.extension))
	{
		extension = table_queries("outbox", false);
		model = table_queries("model", false);
	}

	std::vector<Answer> own = session.extension.must_all(extension, since);
	std::vector<Answer> own_of_model = session.model.must_all(model, since);

	compare_tables(own, own_of_model, name(acting));
	adopt_due_times(session.model, own[0], own_of_model[0]);
}

void
Test::set_up()
{
	// In dated partitions, or in the DEFAULT ones.
	if (random.chance(50))
		observer.must("SELECT * FROM outbox.maintain()");
	for (const Call &first : first_calls())
		call(0, first);
	compare(-1, true);
}

void
Test::run(int steps)
{
	// Rare outcomes may take more calls than that.
	int most = steps < enough_steps ? steps : steps * 3;

	set_up();
	for (int next = steps; next <= most; next += steps_between_full_comparisons)
	{
		while (step_number < next)
			step();
		count_ledger();
		if (not_covered().empty())
			break;
	}

	// Everything ends, and is compared as a whole.
	while (waiting)
		end_transaction(*waiting->blockers.begin(), "COMMIT");
	for (int i = 0; i < session_count; i++)
		if (sessions[i].extension.in_transaction())
			end_transaction(i, "COMMIT");
	for (const Call &last : last_calls())
		call(0, last);
	compare(-1, true);
	count_ledger();
}

void
Test::count_ledger()
{
	Answer ledger = observer.must("SELECT state::text || coalesce(' ' || error_code, ''), count(*) "
								  "FROM outbox.attempts WHERE error_code IS NULL OR error_code "
								  "NOT LIKE 'E_' GROUP BY 1");

	for (const Row &row : ledger.rows)
		counts["ledger"][*row[0]] = std::stoi(*row[1]);
}

// ---- what is shown

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

uint64_t
number_from(const char *variable, uint64_t otherwise)
{
	const char *value = std::getenv(variable);

	return value != nullptr && *value != '\0' ? std::strtoull(value, nullptr, 10) : otherwise;
}

void
print_indented(const std::string &text)
{
	std::string line;

	for (char c : text + "\n")
	{
		if (c != '\n')
		{
			line += c;
			continue;
		}
		std::cout << "# " << line << "\n";
		line.clear();
	}
}

// Exit status: 0 agreed, 1 disagreed, 2 the run itself failed, 3 agreed but met too little.
int
run()
{
	uint64_t seed = number_from("SEED", std::random_device()());
	uint64_t steps = number_from("STEPS", 5000);

	std::cout << "# seed " << seed << ", " << steps << " steps" << std::endl;

	Test test(seed, number_from("TRACE", 0) != 0);
	std::string failure;
	int status = 0;

	try
	{
		test.run(static_cast<int>(steps));
	}
	catch (const Disagreement &disagreement)
	{
		status = 1;
		failure = "extension and model disagree: " + disagreement.what;
	}
	catch (const std::exception &error)
	{
		status = 2;
		failure = error.what();
	}
	test.report(std::cout);
	if (status == 0)
	{
		if (steps < static_cast<uint64_t>(enough_steps))
			return 0;

		std::vector<std::string> missing = test.not_covered();

		for (const std::string &what : missing)
			print_indented("not met: " + what);
		return missing.empty() ? 0 : 3;
	}
	print_indented("step " + std::to_string(test.steps_done()) + ": " + failure);
	print_indented("\nthe steps before:\n" + test.last_steps());
	print_indented("again: SEED=" + std::to_string(seed) + " STEPS=" + std::to_string(steps) +
				   " test/differential/run");
	return status;
}

} // namespace

int
main()
{
	try
	{
		return run();
	}
	catch (const std::exception &error)
	{
		std::cerr << error.what() << "\n";
		return 2;
	}
}
