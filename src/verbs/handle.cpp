// See handle.h.

#include "verbs/handle.h"

#include "commit/transaction.h"
#include "message/audit_notes.h"
#include "message/due.h"
#include "message/lease.h"
#include "message/try_report.h"
#include "server/boundary.h"
#include "server/clock.h"
#include "server/errors.h"
#include "server/stop_point.h"
#include "server/time_limit.h"
#include "verbs/claim.h"

namespace outbox {

namespace {

constexpr char worker_name[] = "outbox handler";
// A lease outlasts the handler by so much, to record the outcome.
constexpr int64 spare_us = 10 * USECS_PER_SEC;

const text *
our_name()
{
	return cstring_to_text(worker_name);
}

// ---- leasing

// Of claim_due(), which puts one row after the other.
HandlerBatch *filling;

void
put_leased(FunctionCallInfo, Datum *values, bool *nulls)
{
	constexpr int lease_token = 16;
	constexpr int lease_columns = 2;
	constexpr int behind = claim_columns - lease_token - lease_columns;
	LeasedMessage *leased = &filling->messages[filling->count++];
	MemoryContext outer;

	leased->id = to_uuid(values[0]);
	leased->token = to_uuid(values[lease_token]);
	leased->expires_at = DatumGetTimestampTz(values[lease_token + 1]);
	memmove(values + lease_token, values + lease_token + lease_columns, sizeof(Datum) * behind);
	memmove(nulls + lease_token, nulls + lease_token + lease_columns, sizeof(bool) * behind);
	outer = MemoryContextSwitchTo(GetMemoryChunkContext(filling->messages));
	leased->message = heap_form_tuple(filling->desc, values, nulls);
	MemoryContextSwitchTo(outer);
}

void
make_room_for(HandlerBatch *batch, int most, MemoryContext context)
{
	MemoryContext outer = MemoryContextSwitchTo(context);

	batch->desc = claimed_desc();
	batch->messages = static_cast<LeasedMessage *>(palloc(sizeof(LeasedMessage) * static_cast<Size>(most)));
	MemoryContextSwitchTo(outer);
}

void
claim_for(Call *call, HandlerBatch *batch, const Queue *queue, int most)
{
	Claim claim = {};

	claim.for_handler = true;
	claim.worker = cstring_to_text(worker_name);
	claim.wanted = most;
	claim.has_lease = true;
	claim.lease_us = batch->lease_us;
	claim.queues = list_make1(queue->name);
	claim.snapshot = GetActiveSnapshot();
	claim.put = put_leased;
	filling = batch;
	claim_due(call, &claim);
}

Changed
store_audited(Call *call, PendingRow *row, Audited what)
{
	Changed changed = store(call, row, Wait::never);

	if (changed == Changed::done)
		note_audited(call, {what, row->queue, our_name(), row->id, row->attempt_count + 1,
							what == Audited::renewed ? row->lease_expires_at : 0});
	return changed;
}

// Those that are left, from the last to the next: none of a key stays leased behind one that was given back.
template <typename Change>
void
change_leases(HandlerBatch *batch, const Change &change)
{
	Call call;

	begin_call(&call, worker_name);
	for (int i = batch->count - 1; i >= batch->done; i--)
	{
		LeasedMessage *leased = &batch->messages[i];
		Holding holding;

		do
			holding = look_at_lease(&call, leased->id, leased->token, our_name());
		while (holding.held == Held::yes && change(&call, leased, holding.row) == Changed::outdated);
	}
	end_call(&call);
}

// ---- one message

// What an ERROR must not take along.
struct Try {
	HandlerBatch *batch;
	LeasedMessage *leased;
	Transaction transaction;
	bool called; // the handler
	bool lost;
	int64 began; // steady clock
};

// False: the lease is lost, or the message waits for another.
bool
may_handle(Call *call, const LeasedMessage *leased)
{
	Holding holding = look_at_lease(call, leased->id, leased->token, our_name());

	return holding.held == Held::yes && !holding.row->held_back;
}

// As it is now, and for the owner that this session serves.
UserFunction
handler_now(Call *call, const HandlerBatch *batch)
{
	const Queue *queue = queue_named(call, cstring_to_text(batch->queue));
	UserFunction handler = {};

	if (queue->handler != nullptr)
		handler = find_handler(queue);
	if (handler.owner != batch->owner)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the handler of queue \"%s\" was changed", batch->queue)));
	return handler;
}

void
record(const LeasedMessage *leased, TryReport *report)
{
	Call call;

	report->id = leased->id;
	report->token = leased->token;
	report->has_state = true;
	begin_call(&call, worker_name);
	settle_try(&call, report, our_name());
	end_call(&call);
}

void
put_latency(TryReport *report, int64 began)
{
	report->details.has_latency = true;
	report->details.latency_ms = static_cast<int>(Min((steady_us() - began) / 1000, PG_INT32_MAX));
}

void
call_in_time(Try *attempt, const UserFunction &handler)
{
	Oid user;
	int context;

	GetUserIdAndSecContext(&user, &context);
	attempt->called = true;
	attempt->began = steady_us();
	begin_time_limit(attempt->batch->timeout_us, attempt->transaction == Transaction::ours);
	OUTBOX_STOP_POINT("handler_before_call");
	call_handler(handler, attempt->leased->message, attempt->batch->desc, attempt->transaction);
	if (is_time_over())
		ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("the handler took too long")));
	if (attempt->transaction == Transaction::of_another)
		SetUserIdAndSecContext(user, context);
}

// The body of the transaction.
void
handle(Try *attempt)
{
	TryReport report = {};
	UserFunction handler = {};
	Call call;

	begin_call(&call, worker_name);
	attempt->lost = !may_handle(&call, attempt->leased);
	if (!attempt->lost)
		handler = handler_now(&call, attempt->batch);
	end_call(&call);
	if (attempt->lost)
		return;
	call_in_time(attempt, handler);
	OUTBOX_STOP_POINT("handler_after_call");
	report.state = core::Record::dispatched;
	put_latency(&report, attempt->began);
	record(attempt->leased, &report);
}

// ---- failures

bool
is_for_good(const ErrorData *error)
{
	return ERRCODE_TO_CATEGORY(error->sqlerrcode) == MAKE_SQLSTATE('P', '8', '0', '0', '0');
}

void
record_failure(const Try *attempt, const ErrorData *error, bool too_long)
{
	TryReport report = {};

	report.state = is_for_good(error) ? core::Record::failed : core::Record::retryable;
	report.details.error_code = cstring_to_text(unpack_sql_state(error->sqlerrcode));
	report.details.error_message = cstring_to_text(
		too_long ? psprintf("the handler took longer than " INT64_FORMAT " ms", attempt->batch->timeout_us / 1000)
				 : error->message);
	put_latency(&report, attempt->began);
	record(attempt->leased, &report);
}

// run(body): in a transaction, or a subtransaction. Returns its error or nullptr.
template <typename Run>
Handled
handle_by(HandlerBatch *batch, Transaction transaction, const Run &run)
{
	Try attempt = {batch, &batch->messages[batch->done], transaction, false, false, 0};
	ErrorData *error = run([&] { handle(&attempt); });
	bool too_long = end_time_limit();

	if (error == nullptr || attempt.called)
		batch->done++;
	if (error == nullptr)
		return {attempt.lost ? Handling::lost : Handling::handled, nullptr};
	if (!attempt.called)
		return {Handling::unable, error};
	// Not a cancel of its own: what the caller runs is canceled.
	if (transaction == Transaction::of_another && !too_long && is_cancel(error))
		ReThrowError(error);
	error = run([&] { record_failure(&attempt, error, too_long && is_cancel(error)); });
	if (error == nullptr)
		return {Handling::failed, nullptr};
	return {error->sqlerrcode == ERRCODE_OUTBOX_LEASE_LOST ? Handling::lost : Handling::unable, error};
}

} // namespace

List *
queues_to_handle(MemoryContext context)
{
	List *result = NIL;
	ListCell *cell;
	Call call;

	begin_call(&call, worker_name);
	foreach (cell, all_queues(&call))
	{
		const Queue *queue = static_cast<const Queue *>(lfirst(cell));
		MemoryContext outer;
		HandledQueue *handled;

		if (queue->handler == nullptr || queue->paused || !has_due(&call, queue))
			continue;
		outer = MemoryContextSwitchTo(context);
		handled = static_cast<HandledQueue *>(palloc0(sizeof(HandledQueue)));
		handled->name = text_to_cstring(queue->name);
		handled->error = in_subtransaction([&] { handled->owner = find_handler(queue).owner; }, Confine::all_errors);
		result = lappend(result, handled);
		MemoryContextSwitchTo(outer);
	}
	end_call(&call);
	return result;
}

void
lease_batch(HandlerBatch *batch, const char *name, int most, MemoryContext context)
{
	const Queue *queue;
	Call call;

	*batch = {};
	batch->queue = name;
	begin_call(&call, worker_name);
	queue = find_queue(&call, cstring_to_text(name));
	if (queue != nullptr && queue->handler != nullptr && !queue->paused)
	{
		batch->owner = find_handler(queue).owner;
		batch->timeout_us = queue->handler_timeout_us;
		batch->lease_us = Max(queue->lease_us, batch->timeout_us + 3 * spare_us);
		make_room_for(batch, most, context);
		claim_for(&call, batch, queue, most);
	}
	end_call(&call);
}

void
return_batch(HandlerBatch *batch)
{
	change_leases(batch, [](Call *call, LeasedMessage *, PendingRow *row) {
		expect(core::State::leased, core::Event::release, false);
		clear_lease(row);
		return store_audited(call, row, Audited::released);
	});
	batch->done = batch->count;
}

void
renew_batch(HandlerBatch *batch)
{
	change_leases(batch, [&](Call *call, LeasedMessage *leased, PendingRow *row) {
		expect(core::State::leased, core::Event::renew, false);
		row->lease_expires_at = later_or_last(GetCurrentTimestamp(), batch->lease_us);
		leased->expires_at = row->lease_expires_at;
		return store_audited(call, row, Audited::renewed);
	});
}

bool
lacks_time(const HandlerBatch *batch)
{
	return !is_over(batch) &&
		   batch->messages[batch->done].expires_at - GetCurrentTimestamp() < batch->timeout_us + spare_us;
}

Handled
handle_next(HandlerBatch *batch)
{
	Oid user;
	int context;

	GetUserIdAndSecContext(&user, &context);
	return handle_by(batch, Transaction::ours, [&](const auto &body) {
		ErrorData *error = in_transaction(body);

		SetUserIdAndSecContext(user, context);
		LockReleaseSession(USER_LOCKMETHOD);
		return error;
	});
}

Handled
handle_next_within(HandlerBatch *batch)
{
	return handle_by(batch, Transaction::of_another,
					 [](const auto &body) { return in_subtransaction(body, Confine::all_errors); });
}

} // namespace outbox
