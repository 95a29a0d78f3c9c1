// See queue_privacy.h.

#include "verbs/queue_privacy.h"

#include "privacy/rule.h"

namespace outbox {

namespace {

void
require_privacy(const Call *call, const char *setting)
{
	if (!has_privs_of_role(call->caller, get_role_oid("outbox_privacy", false)))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to change %s", setting),
						errdetail("Only a member of outbox_privacy lets claims reveal, or changes what a queue "
								  "protects.")));
}

void
put_protect(Call *call, Jsonb *rule, Table *table, TupleTableSlot *row, bool keep_absent)
{
	bool none = rule == nullptr || (JB_ROOT_IS_OBJECT(rule) && JB_ROOT_COUNT(rule) == 0);
	bool had_none = true;

	if (rule == nullptr && keep_absent)
		return;
	if (keep_absent)
		table->get(row, queues_col::protect, &had_none);
	if (!had_none)
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
put_privacy(FunctionCallInfo fcinfo, int protect, int reveal_on_claim, Call *call, Table *table, TupleTableSlot *row,
			bool keep_absent)
{
	put_protect(call, PG_ARGISNULL(protect) ? nullptr : PG_GETARG_JSONB_P(protect), table, row, keep_absent);
	if (!PG_ARGISNULL(reveal_on_claim) && PG_GETARG_BOOL(reveal_on_claim))
		require_privacy(call, "reveal_on_claim");
}

} // namespace outbox
