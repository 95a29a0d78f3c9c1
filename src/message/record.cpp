// See record.h.

#include "message/record.h"

#include "commit/transaction.h"
#include "message/dead.h"
#include "message/notice.h"
#include "commit/record_floor.h"
#include "server/args.h"

namespace outbox {

namespace {

void
fill(Call *call, Table *leaf, TupleTableSlot *row, const Attempt *attempt, TimestampTz now)
{
	using namespace attempts_col;

	set(leaf, row, outbox_id, from_uuid(attempt->outbox_id));
	set(leaf, row, attempt_no, Int32GetDatum(attempt->attempt_no));
	set(leaf, row, state, state_datum(call, attempt->state));
	if (attempt->leased)
	{
		set_text(leaf, row, worker_id, attempt->worker_id);
		set(leaf, row, lease_token, from_uuid(attempt->lease_token));
		set(leaf, row, claimed_at, TimestampTzGetDatum(attempt->claimed_at));
	}
	if (is_terminal(attempt->state))
		set(leaf, row, completed_at, TimestampTzGetDatum(now));
	set_text(leaf, row, reference, cut_for_ledger(attempt->details.reference));
	set_text(leaf, row, response_code, cut_for_ledger(attempt->details.response_code));
	set_text(leaf, row, error_code, cut_for_ledger(attempt->details.error_code));
	set_text(leaf, row, error_message, cut_for_ledger(attempt->details.error_message));
	if (attempt->details.has_latency)
		set(leaf, row, latency_ms, Int32GetDatum(attempt->details.latency_ms));
	set_text(leaf, row, recorded_by, attempt->recorded_by);
	set(leaf, row, created_at, TimestampTzGetDatum(now));
}

Counter
counter_of(core::Record state)
{
	switch (state)
	{
		case core::Record::dispatched:
			return Counter::dispatched;
		case core::Record::failed:
			return Counter::failed;
		case core::Record::retryable:
			return Counter::retryable;
		default:
			return Counter::zombie_requeue;
	}
}

Counter
optimistic_counter_of(const Attempt *attempt)
{
	if (attempt->lost)
		return Counter::optimistic_lost;
	if (attempt->state == core::Record::dispatched)
		return Counter::optimistic_delivered;
	return attempt->state == core::Record::retryable ? Counter::optimistic_retried : Counter::optimistic_failed;
}

void
note_attempt(const Attempt *attempt)
{
	note_count(attempt->queue, counter_of(attempt->state));
	if (attempt->lost)
		note_count(attempt->queue, Counter::leases_lost);
	if (attempt->optimistic)
		note_count(attempt->queue, optimistic_counter_of(attempt));
	if (attempt->details.has_latency)
		note_latency(attempt->queue, attempt->details.latency_ms);
}

} // namespace

void
append(Call *call, Attempt *const *attempts, int count)
{
	TimestampTz now = record_time();

	write_rows(
		attempts, count,
		[&](const Attempt *attempt) { return leaf_of(call, attempts_shape, attempt->outbox_id, inserts); },
		[&](Table *leaf, TupleTableSlot *row, const Attempt *attempt) { fill(call, leaf, row, attempt, now); });
	for (int i = 0; i < count; i++)
	{
		note_attempt(attempts[i]);
		if (attempts[i]->state != core::Record::failed)
			continue;
		add_dead(call, attempts[i]->outbox_id, attempts[i]->queue, now);
		tell_dead(call, attempts[i]);
	}
}

} // namespace outbox
