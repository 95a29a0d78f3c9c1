// replay, replay_batch, replay_up_to: dead letters become new messages, each at most once.
//
// Guarantees: those of message/replaying.h. In the last two a fault of one message stops that message alone, and they
// wait for nothing that another transaction holds. replay_up_to: also those of many.h. It tries a key once: as soon as
// another transaction has something of it, the rest of the key is passed by, so the key's order is kept.

#include "message/replaying.h"
#include "rows/batch.h"
#include "server/args.h"
#include "verbs/many.h"

namespace outbox {

namespace {

struct Items {
	ArrayArg ids;
	core::Uuid *replay_ids; // where there is no error
	int *errors;            // SQLSTATEs
	const TimestampTz *due; // nullptr = at once
	ArrayArg keys;          // for replay_up_to: numbers that stand for their keys; NULL, and below 1 = none
	Progress *progress;     // the same; else nullptr
	Replayable which;
};

Items *
replay_list(ArrayArg ids)
{
	Size count = static_cast<Size>(Max(ids.count, 1));
	Items *items = static_cast<Items *>(palloc0(sizeof(Items)));

	items->ids = ids;
	items->replay_ids = static_cast<core::Uuid *>(palloc0(sizeof(core::Uuid) * count));
	items->errors = static_cast<int *>(palloc0(sizeof(int) * count));
	return items;
}

// 0 = none.
int
number_of_key(const Items *items, int i)
{
	int key = items->progress == nullptr || items->keys.is_null(i) ? 0 : DatumGetInt32(items->keys.items[i]);

	return Max(key, 0);
}

int
replay_item(Call *call, Items *items, int i)
{
	int key = number_of_key(items, i);

	if (items->ids.is_null(i))
		return ERRCODE_NULL_VALUE_NOT_ALLOWED;
	if (key > 0 && bms_is_member(key, items->progress->passed_by))
		return ERRCODE_LOCK_NOT_AVAILABLE;
	items->replay_ids[i] = replay_message(call, to_uuid(items->ids.items[i]), items->due, items->which);
	return 0;
}

void
replay_items(Call *call, Items *items, int first, int count)
{
	for (int i = first; i < first + count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		items->errors[i] = replay_item(call, items, i);
		CommandCounterIncrement(); // the next one may be of the same key
	}
}

void
replay_failed(Items *items, int i, int sqlstate)
{
	int key = number_of_key(items, i);

	items->errors[i] = sqlstate;
	if (key > 0 && sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
		pass_by(items->progress, key);
}

void
replay_part(Call *call, Items *items, int from, int n)
{
	each_item(
		call, n, true, [&](Call *inner, int first, int count) { replay_items(inner, items, from + first, count); },
		[&](int i, ErrorData *error) { replay_failed(items, from + i, error->sqlerrcode); });
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
	Items *items = replay_list(required_array(fcinfo, 0, "outbox_ids"));
	TimestampTz due = PG_ARGISNULL(1) ? 0 : PG_GETARG_TIMESTAMPTZ(1);
	Call call;

	check_batch(items->ids.count, "the number of outbox_ids");
	items->due = PG_ARGISNULL(1) ? nullptr : &due;
	begin_results(fcinfo, 3);
	begin_call(&call, "replay_batch()");
	call.wait = Wait::never;
	replay_part(&call, items, 0, items->ids.count);
	put_replayed(fcinfo, items);
	end_call(&call);
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_replay_up_to)
{
	Items *items = replay_list(required_array(fcinfo, 0, "outbox_ids"));
	int wanted = required_int(fcinfo, 2, "wanted");
	Call call;

	items->keys = required_array(fcinfo, 1, "keys");
	check_same_length(items->keys, items->ids.count, "keys", "outbox_ids");
	items->progress = progress_of_query(fcinfo);
	items->which = Replayable::open;
	begin_results(fcinfo, 2);
	begin_call(&call, "replay_many()");
	call.wait = Wait::never;
	items->ids.count = try_until_done(
		items->ids.count, wanted, items->progress, [&](int first, int n) { replay_part(&call, items, first, n); },
		[&](int i) { return items->errors[i] == 0; });
	put_tried(fcinfo, items->ids, items->errors);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
