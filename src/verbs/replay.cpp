// replay, replay_batch: dead letters become new messages, each at most once.
//
// Guarantees: those of message/replaying.h. In replay_batch a fault of one message stops that message alone.

#include "message/replaying.h"
#include "rows/batch.h"
#include "server/args.h"

namespace outbox {

namespace {

struct Items {
	ArrayArg ids;
	core::Uuid *replay_ids; // where there is no error
	int *errors;            // SQLSTATEs
	const TimestampTz *due; // nullptr = at once
};

void
replay_items(Call *call, Items *items, int first, int count)
{
	for (int i = first; i < first + count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		items->errors[i] = items->ids.is_null(i) ? ERRCODE_NULL_VALUE_NOT_ALLOWED : 0;
		if (items->errors[i] == 0)
			items->replay_ids[i] = replay_message(call, to_uuid(items->ids.items[i]), items->due);
		CommandCounterIncrement(); // the next one may be of the same key
	}
}

void
put_replayed(FunctionCallInfo fcinfo, const Items *items)
{
	for (int i = 0; i < items->ids.count; i++)
	{
		bool nulls[3] = {items->ids.is_null(i), items->errors[i] != 0, false};
		Datum values[3] = {nulls[0] ? 0 : items->ids.items[i], in_place(items->replay_ids[i]),
						   error_datum(items->errors[i], &nulls[2])};

		put_result(fcinfo, values, nulls);
	}
}

} // namespace

OUTBOX_FUNCTION(outbox_replay)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	TimestampTz due = PG_ARGISNULL(1) ? 0 : PG_GETARG_TIMESTAMPTZ(1);
	core::Uuid replay_id;
	Call call;

	begin_call(&call, "replay()");
	replay_id = replay_message(&call, id, PG_ARGISNULL(1) ? nullptr : &due);
	end_call(&call);
	PG_RETURN_DATUM(from_uuid(replay_id));
}

OUTBOX_FUNCTION(outbox_replay_batch)
{
	Items items = {required_array(fcinfo, 0, "outbox_ids"), nullptr, nullptr, nullptr};
	TimestampTz due = PG_ARGISNULL(1) ? 0 : PG_GETARG_TIMESTAMPTZ(1);
	Size count = static_cast<Size>(Max(items.ids.count, 1));
	Call call;

	check_batch(items.ids.count, "the number of outbox_ids");
	items.due = PG_ARGISNULL(1) ? nullptr : &due;
	items.replay_ids = static_cast<core::Uuid *>(palloc0(sizeof(core::Uuid) * count));
	items.errors = static_cast<int *>(palloc0(sizeof(int) * count));
	begin_results(fcinfo, 3);
	begin_call(&call, "replay_batch()");
	each_item(
		&call, items.ids.count, true, [&](Call *inner, int first, int n) { replay_items(inner, &items, first, n); },
		[&](int i, ErrorData *error) { items.errors[i] = error->sqlerrcode; });
	put_replayed(fcinfo, &items);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
