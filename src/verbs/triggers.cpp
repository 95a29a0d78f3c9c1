// The trigger that keeps the ledger: messages and attempts are never updated, deleted
// or truncated, pending is never truncated, by anybody, under any
// session_replication_role (the triggers are ENABLE ALWAYS).

#include "server/boundary.h"
#include "server/errors.h"

OUTBOX_FUNCTION(outbox_append_only)
{
	TriggerData *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);
	const char *command;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("outbox.append_only must be called as a trigger")));
	command = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)     ? "UPDATE"
			  : TRIGGER_FIRED_BY_DELETE(trigger->tg_event)   ? "DELETE"
			  : TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) ? "TRUNCATE"
															 : "this command";
	ereport(ERROR, (errcode(ERRCODE_OUTBOX_APPEND_ONLY),
					errmsg("append-only: %s of table \"%s\" is refused", command,
						   RelationGetRelationName(trigger->tg_relation)),
					errdetail("What was said and what was tried stays as it was written."),
					errhint("A message ends by outbox.complete or outbox.cancel.")));
}
