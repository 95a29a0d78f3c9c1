// claim, and the second half of complete_and_claim: leases due messages to a worker.
//
// Guarantees: it never waits for a row. It leases no more messages than were asked for, no row twice,
// and each row under its own token. There is no planner, so settings of the planner do not matter.
// It leases only messages that the snapshot of the calling statement sees. It records a lost lease
// that it finds before it claims the message. A row that cannot be leased is reported and stops no
// other. The memory that it needs does not grow with the rows that it skips or has returned.
//
// Shape: a claim works in chunks. It gathers candidates from the due index (due.h), lets the scan
// rest, because the next step may wait for locks on leaves, and then changes the rows. The memory of
// a chunk is freed before the next one. Tables and scans live longer, so they are not made or moved
// in it. With weights the queues are gone through in rounds: what a queue cannot give of its share is
// shared by the others in the next one.

#include "verbs/claim.h"

#include "server/client.h"
#include "core/shares.h"
#include "message/grant.h"
#include "server/random.h"
#include "rows/batch.h"
#include "message/lease.h"
#include "message/lost_lease.h"
#include "commit/transaction.h"
#include "privacy/protect.h"
#include "verbs/gather.h"
#include "verbs/repair.h"
#include "verbs/wait.h"

namespace outbox {

namespace {

constexpr int chunk_size = 1000;
// How many keys with a limit are locked at a time.
constexpr int most_keys = 100;
// How many messages a claim ends without leasing them (a lowered ceiling, a lost lease at the
// ceiling) before it leaves the rest to the next call.
constexpr int most_ended = 1000;

// ---- leasing

// If the clock has stepped back since the call began, the lease begins with the call: one that ended before that would
// look expired to this very claim.
void
lease_row(const Call *call, Claim *claim, Candidate *candidate, PendingRow *row, const Queue *queue)
{
	TimestampTz now = Max(GetCurrentTimestamp(), call->now);

	expect(core::State::pending, core::Event::claim, false);
	candidate->token = random_token();
	candidate->expires_at = later_or_last(now, claim->has_lease ? claim->lease_us : queue->lease_us);
	put_lease(row, claim->worker, now, candidate->token, candidate->expires_at);
}

bool
is_used_up(const PendingRow *row, const Queue *queue)
{
	return reaches_ceiling(queue, row->max_attempts, row->attempt_count);
}

// For a row that is not leased: one update.
void
take(Call *call, Claim *claim, Candidate *candidate, const Queue *queue)
{
	PendingRow row = *candidate->row;

	lease_row(call, claim, candidate, &row, queue);
	candidate->taken = store(call, &row, Wait::never) == Changed::done;
	candidate->attempt_count = row.attempt_count;
	if (candidate->taken)
		note_taken(call, claim, candidate);
}

// For a row with a lost lease or a ceiling that is used up: that is settled first.
void
settle_and_take(Call *call, Claim *claim, Candidate *candidate, const Queue *queue)
{
	PendingRow row = *candidate->row;
	Attempt attempt;

	candidate->taken = false;
	if (row.leased)
	{
		Recovery recovery = recover_expired(
			call, &row, claim->worker,
			[&](PendingRow *freed, const Queue *) { lease_row(call, claim, candidate, freed, queue); }, &attempt);

		candidate->taken = recovery == Recovery::freed;
		candidate->attempt_count = row.attempt_count;
		if (candidate->taken)
			note_taken(call, claim, candidate);
		claim->ended += recovery == Recovery::ended;
		return;
	}
	if (end_used_up(call, &row, claim->worker) == Recovery::ended)
	{
		claim->ended++;
		return;
	}
	take(call, claim, candidate, queue);
}

void
take_all(Call *call, Claim *claim, Candidate *candidates, int count, const Queue *queue)
{
	for (int i = 0; i < count; i++)
	{
		Candidate *candidate = &candidates[i];

		CHECK_FOR_INTERRUPTS();
		if (candidate->row->leased || is_used_up(candidate->row, queue))
			settle_and_take(call, claim, candidate, queue);
		else
			take(call, claim, candidate, queue);
	}
}

bool
can_refuse_one(Call *call, const Candidate *candidates, int count, const Queue *queue)
{
	if (has_foreign_parts(pending(call)))
		return true;
	for (int i = 0; i < count; i++)
		if (candidates[i].row->leased || is_used_up(candidates[i].row, queue))
			return true;
	return false;
}

// If a single row may be refused, each is confined.
void
take_candidates(Call *call, Claim *claim, Candidate *candidates, int count, const Queue *queue)
{
	int ended = claim->ended;
	bool alone = can_refuse_one(call, candidates, count, queue);

	// If so, the ledger is written, too, or code of a user runs.
	claim->leases_only = claim->leases_only && !alone;
	each_item(
		call, count, alone,
		[&](Call *inner, int first, int n) {
			claim->ended = first == 0 ? ended : claim->ended;
			take_all(inner, claim, candidates + first, n, queue);
		},
		[&](int i, ErrorData *error) {
			candidates[i].taken = false;
			ereport(WARNING, (errcode(error->sqlerrcode),
							  errmsg("could not lease message %s: %s", shown(candidates[i].row->id), error->message)));
		});
}

// ---- answering

void
put_claimed(Call *call, Claim *claim, const Candidate *candidate, const Queue *queue)
{
	using namespace messages_col;
	static const int columns[] = {outbox_id,    messages_col::queue, event_id,    event_type,      aggregate_type,
								  aggregate_id, partition_key,       sequence_id, idempotency_key, routing_key};
	const Table *leaf = candidate->leaf;
	TupleDesc desc = RelationGetDescr(leaf->rel);
	int most = ceiling(queue, candidate->row->max_attempts);
	Datum *all = static_cast<Datum *>(palloc(sizeof(Datum) * static_cast<Size>(desc->natts)));
	bool *all_nulls = static_cast<bool *>(palloc(sizeof(bool) * static_cast<Size>(desc->natts)));
	Datum values[claim_columns];
	bool nulls[claim_columns] = {};
	int n = 0;
	auto message = [&](int column) {
		values[n] = all[leaf->attno[column] - 1];
		nulls[n++] = all_nulls[leaf->attno[column] - 1];
	};

	heap_deform_tuple(candidate->message, desc, all, all_nulls);
	for (int column : columns)
		message(column);
	message(priority);
	values[n - 1] = Int32GetDatum(DatumGetInt16(values[n - 1]));
	message(payload);
	if (queue != nullptr && queue->reveals && !nulls[n - 1])
		values[n - 1] = JsonbPGetDatum(revealed_fields(call, DatumGetJsonbP(values[n - 1]), IfClosed::leave));
	message(headers);
	values[n++] = Int32GetDatum(candidate->attempt_count);
	nulls[n] = most == 0;
	values[n++] = Int32GetDatum(most);
	message(created_at);
	values[n++] = from_uuid(candidate->token);
	values[n++] = TimestampTzGetDatum(candidate->expires_at);
	message(payload_bytes);
	message(content_type);
	claim->put(claim->fcinfo, values, nulls);
}

// Leases candidates, and answers.
void
take_and_answer(Call *call, Claim *claim, Candidate *candidates, int count, const Queue *queue)
{
	MemoryContext outer = MemoryContextSwitchTo(claim->round);

	take_candidates(call, claim, candidates, count, queue);
	for (int i = 0; i < count; i++)
		if (candidates[i].taken)
		{
			put_claimed(call, claim, &candidates[i], queue);
			claim->taken++;
		}
	MemoryContextSwitchTo(outer);
}

// ---- runs

struct Runs {
	Run *runs;
	int count;
	int room;
};

// Candidates that were taken are heads.
void
begin_runs(Runs *runs, const Candidate *candidates, int count, const Queue *queue)
{
	int room = runs->count + count;

	if (room > runs->room)
	{
		Size size = sizeof(Run) * static_cast<Size>(room);

		runs->runs = static_cast<Run *>(runs->runs == nullptr ? palloc(size) : repalloc(runs->runs, size));
		runs->room = room;
	}
	for (int i = 0; i < count; i++)
		if (candidates[i].taken && candidates[i].row->sequence_id > 0)
			runs->runs[runs->count++] = {
				{queue->name, DatumGetTextPCopy(PointerGetDatum(candidates[i].row->partition_key)),
				 candidates[i].row->sequence_id},
				queue->max_in_flight_per_key > 0 ? queue->max_in_flight_per_key - 1 : PG_INT32_MAX,
				false};
}

// The message behind the last of the run, if it can be leased now.
bool
next_of_run(Call *call, Run *run, const Queue *queue, Candidate *candidate)
{
	Successor next = successor(call, run->last);
	PendingRow *row = next.open ? nullptr : next.row;

	*candidate = {};
	if (row == nullptr || !row->held_back || row->leased || row->claimable_at > call->now || is_used_up(row, queue))
		return false;
	candidate->row = row;
	return true;
}

// One message of each run, as many as are still wanted. A run whose message is not leased then is over.
int
gather_runs(Call *call, Claim *claim, Runs *runs, const Queue *queue, Candidate *candidates)
{
	MemoryContext outer;
	int count = 0;

	MemoryContextReset(claim->round);
	outer = MemoryContextSwitchTo(claim->round);
	for (int i = 0; i < runs->count && count < Min(claim->most - claim->taken, chunk_size); i++)
	{
		Run *run = &runs->runs[i];

		CHECK_FOR_INTERRUPTS();
		if (run->over)
			continue;
		run->over = true;
		if (run->room > 0 && next_of_run(call, run, queue, &candidates[count]))
			candidates[count++].run = run;
	}
	MemoryContextSwitchTo(outer);
	return count;
}

// Nothing else is due: what is still wanted comes from behind the heads, a message of each key at a time.
void
extend_runs(Call *call, Claim *claim, Runs *runs, const Queue *queue)
{
	Candidate *candidates =
		static_cast<Candidate *>(palloc(sizeof(Candidate) * static_cast<Size>(Min(runs->count, chunk_size))));
	int count;

	// A row that this command has given back can be leased again only by the next one.
	CommandCounterIncrement();
	while (claim->taken < claim->most && (count = gather_runs(call, claim, runs, queue, candidates)) > 0)
	{
		count = find_messages(call, claim, candidates, count);
		take_and_answer(call, claim, candidates, count, queue);
		for (int i = 0; i < count; i++)
			if (candidates[i].taken)
			{
				candidates[i].run->over = false;
				candidates[i].run->room--;
				candidates[i].run->last.sequence_id = candidates[i].row->sequence_id;
			}
	}
	pfree(candidates);
}

// True: leases were repaired.
bool
repair_for_claim(Call *call, Claim *claim, const Queue *queue, int wanted)
{
	RepairScan scan = {};

	scan.most = wanted;
	scan.by = claim->worker;
	scan.queues = list_make1(const_cast<Queue *>(queue));
	scan.from = DT_NOBEGIN;
	repair(call, &scan);
	claim->leases_only = claim->leases_only && scan.repaired == 0;
	CommandCounterIncrement();
	return scan.repaired > 0;
}

// Expired leases count: a claim that finds the limit reached repairs.
Grant
grant_from(Call *call, Claim *claim, const Queue *queue, int wanted)
{
	Grant grant = begin_grant(call, queue, wanted);

	if (!grant.is_full || is_alive(my_database()))
		return grant;
	drop_grant(call, &grant);
	repair_for_claim(call, claim, queue, wanted);
	return begin_grant(call, queue, wanted);
}

// Leases what gather(most) finds.
template <typename Gather>
void
take_due(Call *call, Claim *claim, Runs *runs, const Queue *queue, const Gather &gather_next)
{
	Gathered gathered = {};

	while (claim->taken < claim->most && claim->ended < most_ended)
	{
		int count = gather_next(&gathered, claim->most - claim->taken);

		if (count == 0)
			break;
		check_client_after_wait();
		take_and_answer(call, claim, gathered.candidates, count, queue);
		if (queue->fifo)
			begin_runs(runs, gathered.candidates, count, queue);
	}
}

void
take_by_time(Call *call, Claim *claim, Runs *runs, const Queue *queue)
{
	DueScan scan;

	begin_due_scan(&scan, call, queue);
	take_due(call, claim, runs, queue,
			 [&](Gathered *gathered, int most) { return gather(&scan, claim, gathered, Min(most, chunk_size)); });
	end_due_scan(&scan);
}

void
take_turns(Call *call, Claim *claim, Runs *runs, const Queue *queue)
{
	int most_a_round = queue->max_in_flight_per_key > 0 ? most_keys : chunk_size;
	FairScan scan;

	begin_fair_scan(&scan, call, queue);
	take_due(call, claim, runs, queue, [&](Gathered *gathered, int most) {
		return gather_in_turn(&scan, claim, gathered, Min(most, most_a_round));
	});
	end_fair_scan(&scan);
}

// Expired leases count here, too, and may stand behind any number of messages of their key. The background worker
// leaves some of them to claims.
void
take_in_turn(Call *call, Claim *claim, Runs *runs, const Queue *queue)
{
	take_turns(call, claim, runs, queue);
	if (claim->taken < claim->most && queue->max_in_flight_per_key > 0 &&
		repair_for_claim(call, claim, queue, claim->most - claim->taken))
		take_turns(call, claim, runs, queue);
}

// A queue of the claim.
struct Source {
	const Queue *queue;
	Runs runs; // of the heads that this claim has taken
};

void
claim_from(Call *call, Claim *claim, Source *source, int wanted)
{
	const Queue *queue = source->queue;
	Runs *runs = &source->runs;
	int taken_before = claim->taken;
	Grant grant = grant_from(call, claim, queue, wanted);

	claim->most = claim->taken + grant.count;
	claim->round = AllocSetContextCreate(CurrentMemoryContext, "outbox claim", ALLOCSET_DEFAULT_SIZES);
	if (queue->fair)
		take_in_turn(call, claim, runs, queue);
	else
		take_by_time(call, claim, runs, queue);
	if (runs->count > 0 && claim->taken < claim->most)
		extend_runs(call, claim, runs, queue);
	MemoryContextDelete(claim->round);
	end_grant(call, &grant, claim->taken - taken_before);
	if (claim->taken > taken_before)
		claim->taken_from |= mask_of(queue_ref(text_to_cstring(queue->name)).slot);
	note_count(queue->name, Counter::claimed, claim->taken - taken_before);
	note_count(queue->name, Counter::claim_batches, claim->taken > taken_before);
}

// ---- several queues

struct Sources {
	Source *sources;
	int32 *weights; // 0 = there is no more to get
	int count;
};

// Those that exist, are not paused, and have a handler if the claim is for one.
Sources
open_sources(Call *call, const Claim *claim)
{
	Size room = static_cast<Size>(list_length(claim->queues));
	Sources result = {static_cast<Source *>(palloc(sizeof(Source) * room)),
					  static_cast<int32 *>(palloc(sizeof(int32) * room)), 0};
	ListCell *cell;

	foreach (cell, claim->queues)
	{
		const Queue *queue = find_queue(call, static_cast<const text *>(lfirst(cell)));

		if (queue == nullptr || queue->paused || (queue->handler != nullptr) != claim->for_handler)
			continue;
		settle_some_marks(call, queue);
		result.weights[result.count] = claim->weights != nullptr ? claim->weights[foreach_current_index(cell)] : 0;
		result.sources[result.count++] = {queue, {}};
	}
	return result;
}

void
claim_in_order(Call *call, Claim *claim, Sources *from)
{
	for (int i = 0; i < from->count && claim->taken < claim->wanted; i++)
		claim_from(call, claim, &from->sources[i], claim->wanted - claim->taken);
}

// Each round gets all that is wanted, or finds a queue that has no more.
void
claim_by_weight(Call *call, Claim *claim, Sources *from)
{
	int32 *shares = static_cast<int32 *>(palloc(sizeof(int32) * static_cast<Size>(from->count)));
	int left = from->count;

	while (left > 0 && claim->taken < claim->wanted)
	{
		core::share_out(claim->wanted - claim->taken, from->weights, shares, from->count, random_bits());
		for (int i = 0; i < from->count; i++)
		{
			int most = claim->taken + shares[i];

			if (shares[i] == 0)
				continue;
			claim_from(call, claim, &from->sources[i], shares[i]);
			if (claim->taken == most)
				continue;
			from->weights[i] = 0;
			left--;
		}
		// What this command has changed can be leased only by the next one.
		CommandCounterIncrement();
	}
}

void
claim_once(Claim *claim)
{
	Call call;

	begin_call(&call, "claim()");
	queues_to_claim(&call, claim->queues);
	claim_due(&call, claim);
	end_call(&call);
}

// Messages that are committed after the statement began count, too, so each look takes a new
// snapshot.
void
claim_waiting(Claim *claim, int64 us)
{
	Waiting waiting;

	if (IsolationUsesXactSnapshot())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("claim with wait cannot run in an isolation level above READ COMMITTED"),
						errhint("Use CALL outbox.wait_for_work(), then claim.")));
	begin_waiting(&waiting, claim->queues, claim->wanted, us);
	do
		look_once([&] {
			claim->ended = 0;
			claim->snapshot = RegisterSnapshot(GetLatestSnapshot());
			claim_once(claim);
			UnregisterSnapshot(claim->snapshot);
		});
	while (claim->taken == 0 && (claim->ended >= most_ended || wait_on(&waiting)));
	// What a claim that ended many leaves behind is for others.
	end_waiting(claim->ended < most_ended ? claim->taken_from : every_queue);
}

// Of each of the names its weight where it comes first; nullptr if there are none.
int32 *
weights_argument(FunctionCallInfo fcinfo, int arg, int queues_arg, const List *names)
{
	ArrayArg weights = optional_array(fcinfo, arg, "queue_weights");
	ArrayArg queues;
	int32 *result;
	int count = 0;

	if (weights.items == nullptr)
		return nullptr;
	if (PG_ARGISNULL(queues_arg))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("queue_weights needs queues"),
						errhint("Pass queues, one for each weight.")));
	queues = required_array(fcinfo, queues_arg, "queues");
	check_same_length(weights, queues.count, "queue_weights", "queues");
	check_no_nulls(weights, "queue_weights");
	result = static_cast<int32 *>(palloc(sizeof(int32) * static_cast<Size>(list_length(names))));
	for (int i = 0; i < weights.count; i++)
	{
		check_at_least(DatumGetInt32(weights.items[i]), 1, "an element of queue_weights");
		if (count < list_length(names) &&
			equal(static_cast<const text *>(list_nth(names, count)), DatumGetTextPP(queues.items[i])))
			result[count++] = DatumGetInt32(weights.items[i]);
	}
	return result;
}

} // namespace

Claim
claim_arguments(FunctionCallInfo fcinfo, int first, int weights_arg)
{
	Claim claim = {};

	claim.fcinfo = fcinfo;
	claim.worker = worker_argument(fcinfo, 0);
	claim.wanted = required_int(fcinfo, first, "batch_size");
	check_at_least(claim.wanted, 1, "batch_size");
	check_batch(claim.wanted, "batch_size");
	claim.has_lease = !PG_ARGISNULL(first + 1);
	if (claim.has_lease)
	{
		claim.lease_us = positive_interval_us(PG_GETARG_INTERVAL_P(first + 1), "lease");
		later(GetCurrentTimestamp(), claim.lease_us, "lease");
	}
	claim.queues = queue_names_argument(fcinfo, first + 2, "default");
	claim.weights = weights_argument(fcinfo, weights_arg, first + 2, claim.queues);
	claim.snapshot = GetActiveSnapshot();
	return claim;
}

void
claim_due(Call *call, Claim *claim)
{
	Sources sources = open_sources(call, claim);

	claim->leases_only = wrote_only_leases();
	if (claim->weights != nullptr)
		claim_by_weight(call, claim, &sources);
	else
		claim_in_order(call, claim, &sources);
	if (claim->leases_only)
		note_leases();
	report_unrouted(&claim->unrouted, "leased");
}

OUTBOX_FUNCTION(outbox_claim)
{
	Claim claim = claim_arguments(fcinfo, 1, 5);
	int64 wait_us = nonnegative_interval_us(DatumGetIntervalP(required_datum(fcinfo, 4, "wait")), "wait");

	claim.put = put_result;
	begin_results(fcinfo);
	if (wait_us > 0)
		claim_waiting(&claim, wait_us);
	else
		claim_once(&claim);
	return static_cast<Datum>(0);
}

} // namespace outbox
