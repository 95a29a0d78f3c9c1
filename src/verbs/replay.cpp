// replay, replay_batch, replay_up_to: dead letters become new messages, each at most once.
//
// Guarantees: those of message/replaying.h. In the last two a fault of one message stops that message alone, and they
// wait for nothing that another transaction holds. replay_up_to, which replay_many calls: also those of many.h. Of a
// key it replays those of a window in the order of their numbers. It tries a key once: as soon as another transaction
// has something of it, the rest of the key is passed by, so the key's order is kept.

#include "message/replaying.h"

#include <algorithm>
#include <string_view>

#include "message/key_marks.h"
#include "message/ledger.h"
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

int
replay_item(Call *call, Items *items, int i)
{
	if (items->ids.is_null(i))
		return ERRCODE_NULL_VALUE_NOT_ALLOWED;
	items->replay_ids[i] = replay_message(call, to_uuid(items->ids.items[i]), items->due);
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
replay_all(Call *call, Items *items)
{
	each_item(
		call, items->ids.count, true,
		[&](Call *inner, int first, int count) { replay_items(inner, items, first, count); },
		[&](int i, ErrorData *error) { items->errors[i] = error->sqlerrcode; });
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

bool
read_dead(const Search *, const Table *table, TupleTableSlot *slot, Found *)
{
	bool isnull;

	table->get(slot, dead_col::acknowledged_at, &isnull);
	return isnull;
}

void
read_dead_message(const Search *search, const Table *leaf, TupleTableSlot *slot, Found *found)
{
	bool isnull;

	found->number = DatumGetInt64(leaf->get(slot, messages_col::sequence_id, &isnull));
	found->number = isnull ? 0 : found->number;
	if (!isnull)
		found->key = copied_text(leaf, slot, messages_col::partition_key);
	leaf->get(slot, messages_col::replay_of, &isnull);
	if (!isnull && !search->all)
		found->barred = "a replay";
}

// Where a message comes: the oldest first, but those of a key in the order of their numbers. So a message comes at the
// id of the youngest one of its key up to its own number.
struct Place {
	Found *found;
	core::Uuid youngest;
};

// Empty for a message without a key.
std::string_view
as_view(const text *value)
{
	return value == nullptr ? std::string_view() : std::string_view(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

// By key and number. Messages without a key have no number and come first, in the order of their ids.
bool
is_before_in_key(const Place &a, const Place &b)
{
	int order = as_view(a.found->key).compare(as_view(b.found->key));

	if (order == 0 && a.found->number != b.found->number)
		return a.found->number < b.found->number;
	return order != 0 ? order < 0 : compare(a.found->id, b.found->id) < 0;
}

bool
is_before(const Place &a, const Place &b)
{
	int order = compare(a.youngest, b.youngest);

	if (order == 0 && a.found->number != b.found->number)
		return a.found->number < b.found->number;
	return order != 0 ? order < 0 : compare(a.found->id, b.found->id) < 0;
}

bool
are_of_one_key(const Found *a, const Found *b)
{
	return a->key != nullptr && b->key != nullptr && equal(a->key, b->key);
}

void
put_in_order(Found **found, int count)
{
	Place *places = static_cast<Place *>(
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Place) * static_cast<Size>(Max(count, 1))));

	for (int i = 0; i < count; i++)
		places[i] = {found[i], found[i]->id};
	std::sort(places, places + count, is_before_in_key);
	for (int i = 1; i < count; i++)
		if (are_of_one_key(places[i - 1].found, places[i].found) &&
			compare(places[i].youngest, places[i - 1].youngest) < 0)
			places[i].youngest = places[i - 1].youngest;
	std::sort(places, places + count, is_before);
	for (int i = 0; i < count; i++)
		found[i] = places[i].found;
	pfree(places);
}

// Another transaction holds something of the key of this message, so the rest of the key is passed by.
void
note_key_in_use(Search *search, const Found *found)
{
	HASHCTL control = {};
	Digest key;

	if (found->key == nullptr || found->error != ERRCODE_LOCK_NOT_AVAILABLE)
		return;
	control.keysize = sizeof(Digest);
	control.entrysize = sizeof(Digest);
	control.hcxt = search->memory;
	if (search->in_use == nullptr)
		search->in_use = hash_create("outbox keys in use", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	key = digest_of_key(search->queue, found->key);
	hash_search(search->in_use, &key, HASH_ENTER, nullptr);
}

bool
is_key_in_use(const Search *search, const Found *found)
{
	Digest key;

	if (search->in_use == nullptr || found->key == nullptr)
		return false;
	key = digest_of_key(search->queue, found->key);
	return hash_search(search->in_use, &key, HASH_FIND, nullptr) != nullptr;
}

void
replay_found(const Search *search, Call *call, Found *found)
{
	if (is_key_in_use(search, found))
		found->error = ERRCODE_LOCK_NOT_AVAILABLE;
	else
		replay_message(call, found->id, nullptr, Replayable::open);
}

const Kind dead_letters = {"replay_many()", dead_shape,        dead_col::queue, dead_col::died_at, cancelled_code,
						   read_dead,       read_dead_message, put_in_order,    replay_found,      note_key_in_use};

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
	replay_all(&call, items);
	put_replayed(fcinfo, items);
	end_call(&call);
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_replay_up_to)
{
	Search search = search_for(fcinfo, &dead_letters, 2);

	search_and_do(fcinfo, &search);
	return static_cast<Datum>(0);
}

} // namespace outbox
