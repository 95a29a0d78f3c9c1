// What the tables of both sides show after a step.

#include <tuple>

#include "compare.h"
#include "test.h"

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

// A row that is held on one side only would be passed by, or waited for, on that side only. In which order a call takes
// its rows is nobody's promise, so that they are compared when it has them all.
void
Test::compare_locks()
{
	std::set<std::string> of_model = locked_in("model");

	locked = locked_in("outbox");
	if (waiting)
		return;
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
