// seal, and the trigger of outbox.seals.
//
// Guarantee: see seals/closing.h. What can be closed now is closed; a call that finds nothing to close changes only the
// floor of the times of records, and leaves a mark for the next one.

#include "commit/record_floor.h"
#include "rows/call.h"
#include "seals/closing.h"
#include "server/args.h"
#include "server/boundary.h"
#include "upkeep/installed.h"

namespace outbox {

namespace {

// Rows that come later by a restore or a subscription would lie in windows that are closed.
void
require_filled()
{
	if (is_being_filled())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("nothing can be sealed while a restore or a subscription fills the tables")));
}

// A validator, for one, is called when the time of the message is taken, and the message is not yet written: it would
// lie in the window that is closed.
void
require_no_outer_call()
{
	if (InSecurityRestrictedOperation())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("seal() cannot be called by a function that outbox calls, nor in any other "
							   "security-restricted operation")));
}

} // namespace

OUTBOX_FUNCTION(outbox_seal)
{
	Seal seal;
	Call call;

	require_read_committed("seal()");
	require_no_outer_call();
	begin_results(fcinfo, seal_columns);
	begin_call(&call, "seal()");
	require_filled();
	if (seal_now(&call, &seal))
	{
		Datum values[seal_columns];
		bool nulls[seal_columns];

		seal_values(&seal, values, nulls);
		put_result(fcinfo, values, nulls);
	}
	end_call(&call);
	return static_cast<Datum>(0);
}

// Seals that a restore or replication brings: records of this database come after them.
OUTBOX_FUNCTION(outbox_seal_recorded)
{
	const TriggerData *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);
	bool isnull = true;
	Datum to_at = 0;
	Call call;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("outbox.seal_recorded must be called as a row trigger of INSERT")));
	to_at = SPI_getbinval(trigger->tg_trigtuple, RelationGetDescr(trigger->tg_relation),
						  SPI_fnumber(RelationGetDescr(trigger->tg_relation), "to_at"), &isnull);
	if (isnull)
		return PointerGetDatum(nullptr);
	begin_call(&call, "seal_recorded()");
	if (published_floor() < DatumGetTimestampTz(to_at))
		publish_floor(DatumGetTimestampTz(to_at));
	end_call(&call);
	return PointerGetDatum(nullptr);
}

} // namespace outbox
