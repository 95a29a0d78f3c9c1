// Order within a key, of which the extension may be in doubt: what it holds back, and which rows it locks to find out.

#include "compare.h"
#include "test.h"

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
