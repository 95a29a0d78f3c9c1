// cancel, cancel_batch, cancel_up_to: an operator ends pending messages.
//
// Guarantees: those of message/cancelling.h. The last two never wait for a row that another transaction holds, and a
// fault of one message stops that message alone. cancel_up_to: also those of many.h.

#include "message/cancelling.h"
#include "message/lease.h"
#include "rows/batch.h"
#include "server/args.h"
#include "server/errors.h"
#include "verbs/many.h"

namespace outbox {

namespace {

struct Items {
	ArrayArg ids;
	int *attempt_nos; // 0 = it was not cancelled
	int *errors;      // SQLSTATEs
};

Items
cancel_list(ArrayArg ids)
{
	Size size = sizeof(int) * static_cast<Size>(Max(ids.count, 1));

	return {ids, static_cast<int *>(palloc0(size)), static_cast<int *>(palloc0(size))};
}

// 0, or the SQLSTATE with which it is refused.
int
cancel_item(Call *call, Items *items, int i, const Cancelling &how)
{
	int error = 0;

	if (items->ids.is_null(i))
		return ERRCODE_NULL_VALUE_NOT_ALLOWED;
	items->attempt_nos[i] = cancel_message(call, to_uuid(items->ids.items[i]), how, &error);
	return items->attempt_nos[i] == 0 && error == 0 ? ERRCODE_OUTBOX_NOT_PENDING : error;
}

void
cancel_items(Call *call, Items *items, int first, int count, const Cancelling &how)
{
	for (int i = first; i < first + count; i++)
	{
		items->errors[i] = cancel_item(call, items, i, how);
		CommandCounterIncrement(); // the next one may be behind it in its key
	}
}

void
cancel_part(Call *call, Items *items, int from, int n, const Cancelling &how)
{
	each_item(
		call, n, true, [&](Call *inner, int first, int count) { cancel_items(inner, items, from + first, count, how); },
		[&](int i, ErrorData *error) {
			items->attempt_nos[from + i] = 0;
			items->errors[from + i] = error->sqlerrcode;
		});
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
	const Cancelling how = {reason, force, current_user_name()};
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
	Items items = cancel_list(required_array(fcinfo, 0, "outbox_ids"));
	text *reason = required_nonempty_text(fcinfo, 1, "reason");
	bool force = required_bool(fcinfo, 2, "force");
	const Cancelling how = {reason, force, current_user_name()};
	Call call;

	check_batch(items.ids.count, "the number of outbox_ids");
	begin_results(fcinfo, 3);
	begin_call(&call, "cancel_batch()");
	call.wait = Wait::never;
	cancel_part(&call, &items, 0, items.ids.count, how);
	put_cancelled(fcinfo, &items);
	end_call(&call);
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_cancel_up_to)
{
	Items items = cancel_list(required_array(fcinfo, 0, "outbox_ids"));
	int wanted = required_int(fcinfo, 1, "wanted");
	text *reason = required_nonempty_text(fcinfo, 2, "reason");
	bool force = required_bool(fcinfo, 3, "force");
	const Cancelling how = {reason, force, current_user_name()};
	Call call;

	begin_results(fcinfo, 2);
	begin_call(&call, "cancel_many()");
	call.wait = Wait::never;
	items.ids.count = try_until_done(
		items.ids.count, wanted, progress_of_query(fcinfo),
		[&](int first, int n) { cancel_part(&call, &items, first, n, how); },
		[&](int i) { return items.errors[i] == 0; });
	put_tried(fcinfo, items.ids, items.errors);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
