// cancel, cancel_batch: an operator ends pending messages.
//
// Guarantees: those of message/cancelling.h. cancel_batch never waits for a row that another transaction holds, and a
// fault of one message stops that message alone.

#include "message/cancelling.h"
#include "message/lease.h"
#include "rows/batch.h"
#include "server/args.h"
#include "server/errors.h"

namespace outbox {

namespace {

struct Items {
	ArrayArg ids;
	int *attempt_nos; // 0 = it was not cancelled
	int *errors;      // SQLSTATEs
};

void
cancel_items(Call *call, Items *items, int first, int count, const Cancelling &how)
{
	for (int i = first; i < first + count; i++)
	{
		int error = 0;

		items->attempt_nos[i] =
			items->ids.is_null(i) ? 0 : cancel_message(call, to_uuid(items->ids.items[i]), how, &error);
		if (items->ids.is_null(i))
			error = ERRCODE_NULL_VALUE_NOT_ALLOWED;
		else if (items->attempt_nos[i] == 0 && error == 0)
			error = ERRCODE_OUTBOX_NOT_PENDING;
		items->errors[i] = error;
		CommandCounterIncrement(); // the next one may be behind it in its key
	}
}

void
put_cancelled(FunctionCallInfo fcinfo, const Items *items)
{
	for (int i = 0; i < items->ids.count; i++)
	{
		bool nulls[3] = {items->ids.is_null(i), items->attempt_nos[i] == 0, false};
		Datum values[3] = {nulls[0] ? 0 : items->ids.items[i], Int32GetDatum(items->attempt_nos[i]),
						   error_datum(items->errors[i], &nulls[2])};

		put_result(fcinfo, values, nulls);
	}
}

} // namespace

OUTBOX_FUNCTION(outbox_cancel)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	bool force = required_bool(fcinfo, 2, "force");
	const Cancelling how = {reason, force, current_user_name(), Wait::for_row};
	int attempt_no;
	Call call;

	begin_call(&call, "cancel()");
	attempt_no = cancel_message(&call, id, how);
	if (attempt_no == 0)
		raise_not_pending(id);
	end_call(&call);
	PG_RETURN_INT32(attempt_no);
}

OUTBOX_FUNCTION(outbox_cancel_batch)
{
	Items items = {required_array(fcinfo, 0, "outbox_ids"), nullptr, nullptr};
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	bool force = required_bool(fcinfo, 2, "force");
	const Cancelling how = {reason, force, current_user_name(), Wait::never};
	Size size = sizeof(int) * static_cast<Size>(Max(items.ids.count, 1));
	Call call;

	check_batch(items.ids.count, "the number of outbox_ids");
	items.attempt_nos = static_cast<int *>(palloc0(size));
	items.errors = static_cast<int *>(palloc0(size));
	begin_results(fcinfo, 3);
	begin_call(&call, "cancel_batch()");
	each_item(
		&call, items.ids.count, true,
		[&](Call *inner, int first, int count) { cancel_items(inner, &items, first, count, how); },
		[&](int i, ErrorData *error) {
			items.attempt_nos[i] = 0;
			items.errors[i] = error->sqlerrcode;
		});
	put_cancelled(fcinfo, &items);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
