// One call on both sides: sent to the extension, then to the model with what the extension chose; both answer, or both
// wait for the same session.

#include <algorithm>
#include <stdexcept>

#include "compare.h"
#include "test.h"

namespace {

constexpr int patience_ms = 60000;

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

} // namespace

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
