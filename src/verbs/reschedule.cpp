// reschedule: an operator makes a pending message due at another time, or gives it another priority.
//
// Guarantees: a leased row is left alone (55006), also if a claim comes first. The ledger gets no row, because nothing
// was tried.

#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "message/audit_event.h"
#include "message/lease.h"
#include "message/message.h"

namespace outbox {

namespace {

struct Schedule {
	bool has_time;
	TimestampTz next_attempt_at;
	bool has_priority;
	int priority;
};

Schedule
schedule_arguments(FunctionCallInfo fcinfo)
{
	Schedule schedule = {};

	schedule.has_time = !PG_ARGISNULL(1);
	schedule.has_priority = !PG_ARGISNULL(2);
	if (!schedule.has_time && !schedule.has_priority)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("next_attempt_at and priority must not both be null"),
				 errhint("Pass next_attempt_at => now() to make the message due.")));
	if (schedule.has_time)
		schedule.next_attempt_at = PG_GETARG_TIMESTAMPTZ(1);
	if (schedule.has_time)
		check_due_time(schedule.next_attempt_at, "next_attempt_at");
	if (schedule.has_priority)
		schedule.priority = PG_GETARG_INT32(2);
	check_priority(schedule.priority);
	return schedule;
}

PendingRow *
free_row(Call *call, const core::Uuid &id)
{
	PendingRow *row = pending_row(call, id);

	if (row->leased)
		raise_leased(row, "Wait for the worker, or use outbox.break_lease first.");
	return row;
}

void
record_rescheduled(Call *call, const PendingRow *row)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::rescheduled, row->queue, nullptr, &row->id, nullptr, 1};

	put_field(&detail, "next_attempt_at", timestamptz_to_str(row->next_attempt_at));
	put_field(&detail, "priority", static_cast<int32>(row->priority));
	event.detail = end_object(&detail);
	record_event(call, event);
}

} // namespace

OUTBOX_FUNCTION(outbox_reschedule)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	Schedule schedule = schedule_arguments(fcinfo);
	PendingRow *row;
	Call call;

	begin_call(&call, "reschedule()");
	do
	{
		CHECK_FOR_INTERRUPTS();
		row = free_row(&call, id);
		if (schedule.has_time)
			row->next_attempt_at = Max(schedule.next_attempt_at, Min(row->created_at, call.now));
		if (schedule.has_priority)
			row->priority = schedule.priority;
	} while (store(&call, row, Wait::for_row) != Changed::done);
	record_rescheduled(&call, row);
	end_call(&call);
	PG_RETURN_TIMESTAMPTZ(row->next_attempt_at);
}

} // namespace outbox
