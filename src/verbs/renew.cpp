// renew, release: a worker extends its leases, or returns them untried.
//
// Guarantees: each item is fenced like a completion. They never wait: a row
// that another transaction holds is answered with 55P03. The ledger does not change.
// They differ only in the change of the row and share everything else.

#include "server/args.h"
#include "server/errors.h"
#include "rows/batch.h"
#include "message/lease.h"
#include "message/queue.h"

namespace outbox {

namespace {

struct Items {
	ArrayArg ids;
	ArrayArg tokens;
	int *errors; // SQLSTATEs; 0 = none
	TimestampTz *times;
};

Items
items_argument(FunctionCallInfo fcinfo)
{
	Items items;
	Size count;

	items.ids = required_array(fcinfo, 1, "outbox_ids");
	check_batch(items.ids.count, "the number of outbox_ids");
	items.tokens = required_array(fcinfo, 2, "lease_tokens");
	check_same_length(items.tokens, items.ids.count, "lease_tokens", "outbox_ids");
	count = static_cast<Size>(Max(items.ids.count, 1));
	items.errors = static_cast<int *>(palloc0(sizeof(int) * count));
	items.times = static_cast<TimestampTz *>(palloc0(sizeof(TimestampTz) * count));
	return items;
}

// Changes and stores the row if the lease is held, and looks again whenever the row moved. Returns
// the SQLSTATE of a refusal, or 0.
template <typename Change>
int
apply_to_lease(Call *call, const core::Uuid &id, const core::Uuid &token, const text *worker, const Change &change)
{
	for (;;)
	{
		Holding holding = look_at_lease(call, id, token, worker);
		Changed changed;

		CHECK_FOR_INTERRUPTS();
		if (holding.held != Held::yes)
			return ERRCODE_OUTBOX_LEASE_LOST;
		change(holding.row);
		changed = store(call, holding.row, Wait::never);
		if (changed == Changed::busy)
			return ERRCODE_LOCK_NOT_AVAILABLE;
		if (changed == Changed::done)
			return 0;
	}
}

template <typename Change>
void
apply_to_items(Call *call, Items *items, int first, int count, const text *worker, const Change &change)
{
	for (int i = first; i < first + count; i++)
	{
		if (items->ids.is_null(i) || items->tokens.is_null(i))
		{
			items->errors[i] = ERRCODE_NULL_VALUE_NOT_ALLOWED;
			continue;
		}
		items->errors[i] = apply_to_lease(call, to_uuid(items->ids.items[i]), to_uuid(items->tokens.items[i]), worker,
										  [&](PendingRow *held) { items->times[i] = change(call, held); });
		if (items->errors[i] == 0)
			CommandCounterIncrement(); // the same lease may come twice in one call
	}
}

template <typename Change>
void
put_items(FunctionCallInfo fcinfo, Call *call, Items *items, const text *worker, const Change &change)
{
	each_item(
		call, items->ids.count, has_foreign_parts(pending(call)),
		[&](Call *inner, int first, int n) { apply_to_items(inner, items, first, n, worker, change); },
		[&](int i, ErrorData *error) { items->errors[i] = error->sqlerrcode; });
	for (int i = 0; i < items->ids.count; i++)
	{
		Datum values[3];
		bool nulls[3];

		nulls[0] = items->ids.is_null(i);
		values[0] = nulls[0] ? 0 : items->ids.items[i];
		nulls[1] = items->errors[i] != 0;
		values[1] = TimestampTzGetDatum(items->times[i]);
		values[2] = error_datum(items->errors[i], &nulls[2]);
		put_result(fcinfo, values, nulls);
	}
}

} // namespace

OUTBOX_FUNCTION(outbox_renew)
{
	text *worker = worker_argument(fcinfo, 0);
	Items items = items_argument(fcinfo);
	bool has_lease = !PG_ARGISNULL(3);
	int64 lease_us = has_lease ? positive_interval_us(PG_GETARG_INTERVAL_P(3), "lease") : 0;
	Call call;

	later(GetCurrentTimestamp(), lease_us, "lease");
	begin_results(fcinfo);
	begin_call(&call, "renew()");
	put_items(fcinfo, &call, &items, worker, [&](Call *current, PendingRow *row) {
		int64 us = has_lease ? lease_us : queue_named(current, row->queue)->lease_us;

		expect(core::State::leased, core::Event::renew, false);
		row->lease_expires_at = Max(row->lease_expires_at, later_or_last(GetCurrentTimestamp(), us));
		return row->lease_expires_at;
	});
	end_call(&call);
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_release)
{
	text *worker = worker_argument(fcinfo, 0);
	Items items = items_argument(fcinfo);
	int64 delay_us = nonnegative_interval_us(DatumGetIntervalP(required_datum(fcinfo, 3, "delay")), "delay");
	Call call;

	later(GetCurrentTimestamp(), delay_us, "delay");
	begin_results(fcinfo);
	begin_call(&call, "release()");
	put_items(fcinfo, &call, &items, worker, [&](Call *, PendingRow *row) {
		expect(core::State::leased, core::Event::release, false);
		clear_lease(row);
		row->next_attempt_at = later_or_last(GetCurrentTimestamp(), delay_us);
		return row->next_attempt_at;
	});
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
