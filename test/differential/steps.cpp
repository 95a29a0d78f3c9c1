// The steps of a run: transactions, random calls, and what is done by hand.

#include <algorithm>

#include "compare.h"
#include "test.h"

namespace {

constexpr int steps_between_full_comparisons = 250;

// For calls outside a transaction block, and so that no time depends on the zone.
constexpr const char *zones[] = {"UTC", "Europe/Berlin", "America/New_York"};

} // namespace

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

// ---- a run

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
