// See many.h.

#include "verbs/many.h"

#include <string_view>

#include "rows/peek.h"
#include "server/args.h"

namespace outbox {

namespace {

constexpr int most_failures = 10000; // after something was done
constexpr int look_ahead = 10000;    // how many rows more than needed are looked at
constexpr int a_page = 1000;         // how many are looked up at a time
constexpr int a_slice = 1000;        // how many are tried at a time

constexpr int64 no_limit = PG_INT64_MAX;

bool
is_of_queue(const Search *search, const Table *table, TupleTableSlot *slot)
{
	bool isnull;

	return equal(DatumGetTextPP(table->get(slot, search->kind->queue_column, &isnull)), search->queue);
}

bool
is_in_time(const Search *search, const Table *table, TupleTableSlot *slot)
{
	bool isnull;
	TimestampTz time = DatumGetTimestampTz(table->get(slot, search->kind->time_column, &isnull));

	return (!search->has_since || time >= search->since) && (!search->has_until || time < search->until);
}

void
start_behind(const Search *search, Peek *peek)
{
	ScanKeyData key;

	if (search->started)
		key_compares(&key, peek->index, 1, BTGreaterStrategyNumber, F_UUID_GT, in_place(search->after));
	else
		key_compares(&key, peek->index, 1, BTGreaterEqualStrategyNumber, F_UUID_GE, in_place(search->after));
	start_peek(peek, &key, 1);
}

// The next rows of the queue and of the time, up to a page.
int
find_rows(Search *search, Call *call, Found *page)
{
	Table *table = open(call, search->kind->shape, reads);
	int64 entries = no_limit;
	int count = 0;
	Peek peek;

	begin_peek(&peek, table, primary_key, 1);
	start_behind(search, &peek);
	while (count < a_page && next_within(&peek, ForwardScanDirection, &entries) == Walk::row)
	{
		Found *found = &page[count];
		bool isnull;

		*found = {};
		found->id = to_uuid(table->get(peek.slot, 0, &isnull));
		count += is_of_queue(search, table, peek.slot) && is_in_time(search, table, peek.slot) &&
				 search->kind->read_row(search, table, peek.slot, found);
	}
	end_peek(&peek);
	search->ended = count < a_page;
	search->started = search->started || count > 0;
	if (count > 0)
		search->after = page[count - 1].id;
	return count;
}

// Calls read(leaf, slot, found) with the last row of each message, all of which are of one leaf; slot is nullptr if
// there is none, and leaf if no partition is for their ids. What read() says true of is moved to the place `kept`, and
// so on. Returns the new `kept`.
template <typename Read>
int
read_last_rows(Table *leaf, Found *page, int from, int to, int kept, const Read &read)
{
	Peek peek;

	if (leaf == nullptr)
	{
		for (int i = from; i < to; i++)
			if (read(leaf, nullptr, &page[i]))
				page[kept++] = page[i];
		return kept;
	}
	begin_peek(&peek, leaf, primary_key, 1);
	for (int i = from; i < to; i++)
	{
		int64 entries = no_limit;
		ScanKeyData key;
		bool is_there;

		key_equals(&key, peek.index, 1, F_UUID_EQ, in_place(page[i].id));
		start_peek(&peek, &key, 1);
		is_there = next_within(&peek, BackwardScanDirection, &entries) == Walk::row;
		if (read(leaf, is_there ? peek.slot : nullptr, &page[i]))
			page[kept++] = page[i];
	}
	end_peek(&peek);
	return kept;
}

// Returns how many are kept. A leaf is opened once for all look-ups in it that follow each other, and all leaves are
// locked before a page is pinned.
template <typename Read>
int
look_up_all(Call *call, const Shape &shape, Found *page, int count, const Read &read)
{
	int kept = 0;

	for (int i = 0; i < count; i++)
		page[i].leaf = find_leaf(call, shape, page[i].id, reads);
	for (int from = 0, to; from < count; from = to)
	{
		Table *leaf = page[from].leaf;

		for (to = from + 1; to < count && page[to].leaf == leaf;)
			to++;
		kept = read_last_rows(leaf, page, from, to, kept, read);
	}
	return kept;
}

bool
read_facts(const Search *search, const Table *leaf, TupleTableSlot *slot, Found *found)
{
	bool isnull = true;
	Datum event = slot == nullptr ? static_cast<Datum>(0) : leaf->get(slot, messages_col::event_type, &isnull);

	if (search->event_type != nullptr && (isnull || !equal(DatumGetTextPP(event), search->event_type)))
		return false;
	if (slot == nullptr)
		return true;
	found->event = copied_text(leaf, slot, messages_col::event_type);
	if (search->kind->read_message != nullptr)
		search->kind->read_message(search, leaf, slot, found);
	return true;
}

bool
is_error_meant(const Search *search, const text *error)
{
	const char *left_alone = search->kind->error_left_alone;

	if (search->error_code != nullptr)
		return error != nullptr && equal(error, search->error_code);
	return error == nullptr || left_alone == nullptr ||
		   std::string_view(VARDATA_ANY(error), VARSIZE_ANY_EXHDR(error)) != left_alone;
}

bool
read_last_error(const Search *search, const Table *leaf, TupleTableSlot *slot, Found *found)
{
	bool isnull = true;
	Datum error = slot == nullptr ? static_cast<Datum>(0) : leaf->get(slot, attempts_col::error_code, &isnull);
	bool is_meant = is_error_meant(search, isnull ? nullptr : DatumGetTextPP(error));

	if (is_meant && !isnull)
		found->last_error = copied_text(leaf, slot, attempts_col::error_code);
	if (!is_meant && found->event != nullptr)
		pfree(found->event);
	if (!is_meant && found->key != nullptr)
		pfree(found->key);
	return is_meant;
}

// Returns how many are meant; looked: how many rows were looked at for that.
int
find_page(Search *search, Call *call, Found *page, int *looked)
{
	int count = *looked = find_rows(search, call, page);

	count = look_up_all(call, messages_shape, page, count, [&](const Table *leaf, TupleTableSlot *slot, Found *found) {
		return read_facts(search, leaf, slot, found);
	});
	return look_up_all(call, attempts_shape, page, count, [&](const Table *leaf, TupleTableSlot *slot, Found *found) {
		return read_last_error(search, leaf, slot, found);
	});
}

bool
is_trying(const Search *search)
{
	return search->done < search->wanted && (search->done == 0 || search->failures < most_failures);
}

// As many as are still needed, at least one, and those in the look-ahead behind them.
int
find_window(Search *search, Found **window)
{
	int needed = is_trying(search) ? search->wanted - search->done : 1;
	int count = 0;
	int room = 2 * a_page;
	int ahead = 0;
	Call call;

	*window = static_cast<Found *>(palloc(sizeof(Found) * static_cast<Size>(room)));
	begin_reading(&call);
	do
	{
		bool has_needed = count >= needed;
		int looked;

		if (count + a_page > room)
		{
			room = 2 * (count + a_page);
			*window = static_cast<Found *>(repalloc_huge(*window, sizeof(Found) * static_cast<Size>(room)));
		}
		count += find_page(search, &call, *window + count, &looked);
		ahead += has_needed ? looked : 0;
	} while (!search->ended && (count < needed || ahead < look_ahead));
	end_reading(&call);
	return count;
}

void
try_some(const Search *search, Call *call, Found **found, int count)
{
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		found[i]->error = 0;
		search->kind->try_one(search, call, found[i]);
		CommandCounterIncrement(); // the next one may be of the same key
	}
}

void
note_failed(Search *search, Found *found, int sqlstate)
{
	found->error = sqlstate;
	if (search->kind->note_failed != nullptr)
		search->kind->note_failed(search, found);
}

void
try_slice(Search *search, Found **found, int count)
{
	MemoryContext previous = MemoryContextSwitchTo(search->slice);
	Call call;

	begin_call(&call, search->kind->function);
	call.wait = Wait::never;
	each_item(
		&call, count, true, [&](Call *inner, int first, int n) { try_some(search, inner, found + first, n); },
		[&](int i, ErrorData *error) { note_failed(search, found[i], error->sqlerrcode); });
	end_call(&call);
	MemoryContextSwitchTo(previous);
	MemoryContextReset(search->slice);
	for (int i = 0; i < count; i++)
	{
		found[i]->tried = true;
		search->done += found[i]->error == 0;
		search->failures += search->done > 0 && found[i]->error != 0;
	}
}

void
try_window(Search *search, Found *window, int count)
{
	Found **order = static_cast<Found **>(
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Found *) * static_cast<Size>(Max(count, 1))));
	int left = 0;
	int tried = 0;

	for (int i = 0; i < count; i++)
		if (window[i].barred == nullptr)
			order[left++] = &window[i];
	if (search->kind->put_in_order != nullptr)
		search->kind->put_in_order(order, left);
	while (is_trying(search) && tried < left)
	{
		int n = Min(Min(search->wanted - search->done, left - tried), a_slice);

		try_slice(search, order + tried, n);
		tried += n;
	}
	search->is_left = search->is_left || tried < left;
}

void
put_window(FunctionCallInfo fcinfo, const Found *window, int count)
{
	for (int i = 0; i < count; i++)
	{
		const Found *found = &window[i];
		bool nulls[4] = {false, found->event == nullptr, found->last_error == nullptr,
						 found->barred == nullptr && !found->tried};
		const char *outcome = found->barred != nullptr ? found->barred
							  : found->error != 0      ? unpack_sql_state(found->error)
													   : "done";
		Datum values[4] = {in_place(found->id), PointerGetDatum(found->event), PointerGetDatum(found->last_error),
						   CStringGetTextDatum(outcome)};

		put_result(fcinfo, values, nulls);
	}
}

void
put_more(FunctionCallInfo fcinfo)
{
	bool nulls[4] = {true, true, true, true};
	Datum values[4] = {};

	put_result(fcinfo, values, nulls);
}

} // namespace

Search
search_for(FunctionCallInfo fcinfo, const Kind *kind, int filters)
{
	Search search = {};

	search.kind = kind;
	search.queue = required_text(fcinfo, 0, "queue");
	search.wanted = required_int(fcinfo, 1, "wanted");
	check_at_least(search.wanted, 0, "wanted");
	if (search.wanted > 0)
	{
		check_batch(search.wanted, "wanted");
		PreventCommandIfReadOnly(kind->function);
	}
	search.event_type = optional_text(fcinfo, filters);
	search.error_code = optional_text(fcinfo, filters + 1);
	search.has_since = !PG_ARGISNULL(filters + 2);
	search.since = search.has_since ? PG_GETARG_TIMESTAMPTZ(filters + 2) : 0;
	search.has_until = !PG_ARGISNULL(filters + 3);
	search.until = search.has_until ? PG_GETARG_TIMESTAMPTZ(filters + 3) : 0;
	search.all = !PG_ARGISNULL(filters + 4) && PG_GETARG_BOOL(filters + 4);
	search.memory = CurrentMemoryContext;
	search.slice = AllocSetContextCreate(CurrentMemoryContext, "outbox slice of many", ALLOCSET_DEFAULT_SIZES);
	return search;
}

void
search_and_do(FunctionCallInfo fcinfo, Search *search)
{
	MemoryContext context = AllocSetContextCreate(search->memory, "outbox window of many", ALLOCSET_DEFAULT_SIZES);

	begin_results(fcinfo, 4);
	do
	{
		Found *window;
		int count;

		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		count = find_window(search, &window);
		if (search->wanted > 0)
			try_window(search, window, count);
		put_window(fcinfo, window, count);
		MemoryContextSwitchTo(search->memory);
	} while (!search->ended && (search->wanted == 0 || is_trying(search) || !search->is_left));
	if (!search->ended)
		put_more(fcinfo);
	MemoryContextDelete(context);
	MemoryContextDelete(search->slice);
}

} // namespace outbox
