// renew, release: a worker extends its leases, or returns them untried.
//
// Guarantees: each item is fenced like a completion. They never wait: 55P03 is the result for a row
// that another transaction holds. A client that is gone renews nothing. The ledger does not change, except
// for releases beyond the queue's max_releases: each of these is a try and leaves one attempt.
//
// Shape: they differ only in the change of the row. The pass that changes rows leaves a release that
// counts as a try, and it is then reported as a try.

#include "server/args.h"
#include "server/client.h"
#include "server/errors.h"
#include "rows/batch.h"
#include "message/audit_notes.h"
#include "message/lease.h"
#include "message/order.h"
#include "message/queue.h"
#include "message/try_report.h"
#include "commit/transaction.h"

namespace outbox {

namespace {

struct Items {
	ArrayArg ids;
	ArrayArg tokens;
	int *errors;        // SQLSTATEs; 0 = none
	TimestampTz *times; // 0 = the message has ended
	bool *left;         // by change()
	bool *have_turns;   // what was released: something may be leased behind it
	bool are_released;  // rather than renewed
};

Items
items_argument(FunctionCallInfo fcinfo)
{
	Items items = {};
	Size count;

	items.ids = required_array(fcinfo, 1, "outbox_ids");
	check_batch(items.ids.count, "the number of outbox_ids");
	items.tokens = required_array(fcinfo, 2, "lease_tokens");
	check_same_length(items.tokens, items.ids.count, "lease_tokens", "outbox_ids");
	count = static_cast<Size>(Max(items.ids.count, 1));
	items.errors = static_cast<int *>(palloc0(sizeof(int) * count));
	items.times = static_cast<TimestampTz *>(palloc0(sizeof(TimestampTz) * count));
	items.left = static_cast<bool *>(palloc0(sizeof(bool) * count));
	items.have_turns = static_cast<bool *>(palloc0(sizeof(bool) * count));
	return items;
}

// Changes and stores the row if the lease is held and change(call, row, time) is true, and looks again
// if the row was changed. Returns the SQLSTATE of a refusal, or 0.
template <typename Change>
int
apply_to_item(Call *call, Items *items, int i, const text *worker, const Change &change)
{
	for (;;)
	{
		Holding holding = look_at_lease(call, to_uuid(items->ids.items[i]), to_uuid(items->tokens.items[i]), worker);
		Changed changed;

		CHECK_FOR_INTERRUPTS();
		if (holding.held != Held::yes)
			return ERRCODE_OUTBOX_LEASE_LOST;
		items->left[i] = !change(call, holding.row, &items->times[i]);
		items->have_turns[i] = items->are_released && has_turn(call, holding.row);
		if (items->left[i])
			return 0;
		changed = store(call, holding.row, Wait::never);
		if (changed == Changed::busy)
			return ERRCODE_LOCK_NOT_AVAILABLE;
		if (changed == Changed::outdated)
			continue;
		if (items->are_released)
			note_count(holding.row->queue, Counter::released);
		note_audited(call, {items->are_released ? Audited::released : Audited::renewed, holding.row->queue, worker,
							holding.row->id, holding.row->attempt_count + 1,
							items->are_released ? 0 : holding.row->lease_expires_at});
		CommandCounterIncrement(); // the same lease may come twice in one call
		return 0;
	}
}

template <typename Change>
void
apply_to_items(Call *call, Items *items, int first, int count, const text *worker, const Change &change)
{
	for (int i = first; i < first + count; i++)
	{
		items->left[i] = items->have_turns[i] = false;
		items->errors[i] = items->ids.is_null(i) || items->tokens.is_null(i)
							   ? ERRCODE_NULL_VALUE_NOT_ALLOWED
							   : apply_to_item(call, items, i, worker, change);
	}
}

template <typename Change>
void
change_items(Call *call, Items *items, const text *worker, const Change &change)
{
	each_item(
		call, items->ids.count, has_foreign_parts(pending(call)),
		[&](Call *inner, int first, int n) { apply_to_items(inner, items, first, n, worker, change); },
		[&](int i, ErrorData *error) { items->errors[i] = error->sqlerrcode; });
}

void
put_items(FunctionCallInfo fcinfo, const Items *items)
{
	for (int i = 0; i < items->ids.count; i++)
	{
		Datum values[3];
		bool nulls[3];

		nulls[0] = items->ids.is_null(i);
		values[0] = nulls[0] ? 0 : items->ids.items[i];
		nulls[1] = items->errors[i] != 0 || items->times[i] == 0;
		values[1] = TimestampTzGetDatum(items->times[i]);
		values[2] = error_datum(items->errors[i], &nulls[2]);
		put_result(fcinfo, values, nulls);
	}
}

bool
may_release_untried(const Queue *queue, const PendingRow *row)
{
	return queue == nullptr || queue->max_releases < 0 || row->release_count < queue->max_releases;
}

// Reports those that were left.
void
count_releases(Call *call, Items *items, const text *worker, int64 delay_us)
{
	TryReport *reports =
		static_cast<TryReport *>(palloc0(sizeof(TryReport) * static_cast<Size>(Max(items->ids.count, 1))));
	int n = 0;

	for (int i = 0; i < items->ids.count; i++)
		if (items->left[i])
		{
			TryReport *report = &reports[n++];

			report->id = to_uuid(items->ids.items[i]);
			report->token = to_uuid(items->tokens.items[i]);
			report->has_state = true;
			report->state = core::Record::retryable;
			report->details.error_code = cstring_to_text(released_code);
			report->delay_us = delay_us;
			report->is_release = true;
		}
	settle_tries(call, reports, n, worker);
	for (int i = 0; i < items->ids.count; i++)
		if (items->left[i])
		{
			items->errors[i] = reports->error;
			items->times[i] = reports->rescheduled ? reports->next_attempt_at : 0;
			reports++;
		}
}

void
release_behind(Call *call, const core::Uuid &id)
{
	PendingRow *row;
	Changed changed;

	do
	{
		row = find_pending(call, id);
		changed = row == nullptr ? Changed::done : release_run(call, row, Wait::never);
	} while (changed == Changed::outdated);
	if (changed == Changed::busy)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("a message behind message %s in its partition_key is held by another transaction", shown(id)),
				 errhint("Release the messages of a key together, and try again.")));
}

// In an ordered key no message stays leased behind one that was given back. Last: those that were named have been
// released as such.
void
release_runs(Call *call, const Items *items)
{
	// What this command has changed can be held only by the next one.
	CommandCounterIncrement();
	for (int i = 0; i < items->ids.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (items->have_turns[i] && items->errors[i] == 0)
			release_behind(call, to_uuid(items->ids.items[i]));
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
	change_items(&call, &items, worker, [&](Call *current, PendingRow *row, TimestampTz *expires_at) {
		int64 us = has_lease ? lease_us : queue_named(current, row->queue)->lease_us;

		expect(core::State::leased, core::Event::renew, false);
		row->lease_expires_at = Max(row->lease_expires_at, later_or_last(GetCurrentTimestamp(), us));
		*expires_at = row->lease_expires_at;
		return true;
	});
	check_client_after_wait();
	put_items(fcinfo, &items);
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
	items.are_released = true;
	change_items(&call, &items, worker, [&](Call *current, PendingRow *row, TimestampTz *due_at) {
		if (!may_release_untried(find_queue(current, row->queue), row))
			return false;
		expect(core::State::leased, core::Event::release, false);
		clear_lease(row);
		row->release_count += row->release_count < PG_INT32_MAX;
		row->next_attempt_at = later_or_last(GetCurrentTimestamp(), delay_us);
		*due_at = row->next_attempt_at;
		return true;
	});
	count_releases(&call, &items, worker, delay_us);
	release_runs(&call, &items);
	put_items(fcinfo, &items);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
