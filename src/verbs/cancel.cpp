// cancel, cancel_batch, cancel_up_to: an operator ends pending messages.
//
// Guarantees: those of message/cancelling.h. The last two never wait for a row that another transaction holds, and a
// fault of one message stops that message alone. cancel_up_to, which cancel_many calls: also those of many.h.

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
cancel_all(Call *call, Items *items, const Cancelling &how)
{
	each_item(
		call, items->ids.count, true,
		[&](Call *inner, int first, int count) { cancel_items(inner, items, first, count, how); },
		[&](int i, ErrorData *error) {
			items->attempt_nos[i] = 0;
			items->errors[i] = error->sqlerrcode;
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

bool
read_pending(const Search *search, const Table *table, TupleTableSlot *slot, Found *found)
{
	bool isnull;
	TimestampTz expires_at = DatumGetTimestampTz(table->get(slot, pending_col::lease_expires_at, &isnull));

	if (!isnull && expires_at > GetCurrentTimestamp() && !search->all)
		found->barred = "leased";
	return true;
}

void
cancel_found(const Search *search, Call *call, Found *found)
{
	const Cancelling how = {search->reason, search->all, search->by};

	if (cancel_message(call, found->id, how, &found->error) == 0 && found->error == 0)
		found->error = ERRCODE_OUTBOX_NOT_PENDING;
}

const Kind pending_messages = {"cancel_many()",
							   pending_shape,
							   pending_col::queue,
							   pending_col::created_at,
							   nullptr,
							   read_pending,
							   nullptr,
							   nullptr,
							   cancel_found,
							   nullptr};

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
	cancel_all(&call, &items, how);
	put_cancelled(fcinfo, &items);
	end_call(&call);
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_cancel_up_to)
{
	Search search = search_for(fcinfo, &pending_messages, 3);

	search.reason = required_nonempty_text(fcinfo, 2, "reason");
	search.by = current_user_name();
	search_and_do(fcinfo, &search);
	return static_cast<Datum>(0);
}

} // namespace outbox
