// See queue_privacy.h.

#include "verbs/queue_privacy.h"

#include "privacy/protect.h"
#include "privacy/rule.h"

namespace outbox {

namespace {

void
require_privacy(const Call *call, const char *setting)
{
	if (!may_reveal(call))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to change %s", setting),
						errdetail("Only a member of outbox_privacy decides who sees what a queue protects.")));
}

bool
has_setting(Table *table, TupleTableSlot *row, int column)
{
	bool isnull;

	table->get(row, column, &isnull);
	return !isnull;
}

void
put_protect(Call *call, Jsonb *rule, Table *table, TupleTableSlot *row, bool keep_absent)
{
	bool none = rule == nullptr || (JB_ROOT_IS_OBJECT(rule) && JB_ROOT_COUNT(rule) == 0);

	if (rule == nullptr && keep_absent)
		return;
	if (keep_absent && has_setting(table, row, queues_col::protect))
		require_privacy(call, "protect");
	if (none)
	{
		set_null(table, row, queues_col::protect);
		return;
	}
	parse_rule(rule);
	set(table, row, queues_col::protect, JsonbPGetDatum(rule));
}

} // namespace

void
put_privacy(FunctionCallInfo fcinfo, int (*argument_of)(int), Call *call, Table *table, TupleTableSlot *row,
			bool keep_absent)
{
	int protect = argument_of(queues_col::protect);
	int reveals = argument_of(queues_col::reveal_on_claim);
	auto given = [&](int column) { return !PG_ARGISNULL(argument_of(column)); };
	bool isnull;

	put_protect(call, PG_ARGISNULL(protect) ? nullptr : PG_GETARG_JSONB_P(protect), table, row, keep_absent);
	if (!PG_ARGISNULL(reveals) && PG_GETARG_BOOL(reveals))
		require_privacy(call, "reveal_on_claim");
	// The validator sees what is still to be encrypted.
	if ((given(queues_col::validator) || given(queues_col::protect)) &&
		has_setting(table, row, queues_col::validator) && has_setting(table, row, queues_col::protect))
		require_privacy(call, "validator");
	if (given(queues_col::handler) && has_setting(table, row, queues_col::handler) &&
		DatumGetBool(table->get(row, queues_col::reveal_on_claim, &isnull)))
		require_privacy(call, "handler");
}

void
check_privacy_of_dropped(const Call *call, Table *table, TupleTableSlot *row)
{
	if (has_setting(table, row, queues_col::protect))
		require_privacy(call, "protect");
}

} // namespace outbox
