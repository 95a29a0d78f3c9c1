// The contents of a queue: the function of the view outbox.status.
//
// Guarantees: for each of its counts it reads at most outbox.count_limit entries of a queue, dead ones included, and
// for many queues together no more than for five. If that is all, the count is exact. If not, the totals are those
// that commits keep in shared memory since the worker counted (upkeep/recount.h). If these are unknown, the count is
// what was read, a lower bound. The result tells which of the three it is.
//
// Shape: the index of due times is read on both sides of now, priority by priority. Rows before now are due or have an
// expired lease; rows behind are scheduled or leased. Rows that are held back have an index
// of their own. The row itself decides its state.

#include "commit/entries.h"
#include "commit/shared.h"
#include "message/queue.h"
#include "rows/call.h"
#include "rows/peek.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/settings.h"

namespace outbox {

namespace {

// At least this many entries of each priority are read, to find its oldest.
constexpr int64 least_entries = 16;
// This many queues may each be read up to the limit; more queues share the same number of entries.
constexpr int queues_in_full = 5;

struct Held {
	int64 due;
	int64 scheduled;
	int64 waiting; // behind others of their key
	int64 leased;
	int64 expired;
	int64 dead;
	TimestampTz oldest_due; // DT_NOEND = none
	TimestampTz oldest;
	bool all_due; // all rows before now were read
	bool all_later;
	bool all_held_back;
	bool all_dead;
};

struct Asked {
	text *queue;
	TimestampTz now;
	int64 limit; // of the entries for each question
	Table *pending;
	QueueRef ref;
	Held held;
};

struct Row {
	TimestampTz next_attempt_at;
	TimestampTz created_at;
	TimestampTz expires_at;
	bool leased;
	bool held_back;
};

// Counts the queues once for each statement: the view calls this for one queue after the other. By the
// snapshot of the statement, because a parallel query takes no other.
int64
share_of_limit(Call *call)
{
	static TimestampTz counted_for;
	static int queues;

	if (counted_for != GetCurrentStatementStartTimestamp())
		queues = list_length(all_queues(call, GetActiveSnapshot()));
	counted_for = GetCurrentStatementStartTimestamp();
	return static_cast<int64>(count_limit()) * queues_in_full / Max(queues, queues_in_full);
}

Row
read_row(const Table *table, TupleTableSlot *slot)
{
	bool isnull;
	Row row;

	row.next_attempt_at = DatumGetTimestampTz(table->get(slot, pending_col::next_attempt_at, &isnull));
	row.created_at = DatumGetTimestampTz(table->get(slot, pending_col::created_at, &isnull));
	row.expires_at = DatumGetTimestampTz(table->get(slot, pending_col::lease_expires_at, &isnull));
	row.leased = !isnull;
	row.held_back = DatumGetBool(table->get(slot, pending_col::held_back, &isnull));
	return row;
}

void
count_row(Asked *asked, const Row &row)
{
	Held *held = &asked->held;

	if (row.leased && row.expires_at > asked->now)
		held->leased++;
	else if (row.leased)
		held->expired++;
	else if (row.held_back)
		held->waiting++;
	else if (row.next_attempt_at > asked->now)
		held->scheduled++;
	else
	{
		held->due++;
		if (!TIMESTAMP_NOT_FINITE(row.next_attempt_at))
			held->oldest_due = Min(held->oldest_due, row.next_attempt_at);
	}
	if (!TIMESTAMP_NOT_FINITE(row.created_at))
		held->oldest = Min(held->oldest, row.created_at);
}

// The rows of a priority on one side of now. False if there are more entries than it may read.
bool
walk_level(Asked *asked, Peek *peek, int level, bool later, int64 *entries)
{
	ScanKeyData keys[4];
	int64 left = Max(*entries, least_entries);
	int64 given = left;
	TimestampTz from = later ? asked->now : DT_NOBEGIN;
	Walk walk;

	// A snapshot older than this statement also sees rows below the floor that have ended since.
	if (!later && asked->ref.slot != nullptr && !IsolationUsesXactSnapshot())
		from = due_floor(asked->ref, asked->queue, level);
	key_equals(&keys[0], peek->index, 1, F_TEXTEQ, PointerGetDatum(asked->queue));
	key_equals(&keys[1], peek->index, 2, F_INT2EQ, Int16GetDatum(static_cast<int16>(level)));
	key_compares(&keys[2], peek->index, 3, later ? BTGreaterStrategyNumber : BTGreaterEqualStrategyNumber,
				 later ? F_TIMESTAMPTZ_GT : F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from));
	key_compares(&keys[3], peek->index, 3, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
				 TimestampTzGetDatum(later ? DT_NOEND : asked->now));
	start_peek(peek, keys, 4);
	while ((walk = next_within(peek, ForwardScanDirection, &left)) == Walk::row)
		count_row(asked, read_row(asked->pending, peek->slot));
	*entries -= given - Max(left, 0);
	return walk == Walk::end;
}

void
walk_due(Asked *asked)
{
	Peek peek;

	begin_peek(&peek, asked->pending, pending_index::due, 4);
	for (bool later : {false, true})
	{
		int64 entries = asked->limit;
		bool all = true;

		for (int level = priorities - 1; level >= 0; level--)
			all = walk_level(asked, &peek, level, later, &entries) && all;
		*(later ? &asked->held.all_later : &asked->held.all_due) = all;
	}
	end_peek(&peek);
}

void
walk_held_back(Asked *asked)
{
	int64 entries = asked->limit;
	ScanKeyData key;
	Peek peek;
	Walk walk;

	begin_peek(&peek, asked->pending, pending_index::held_back, 1);
	key_equals(&key, peek.index, 1, F_TEXTEQ, PointerGetDatum(asked->queue));
	start_peek(&peek, &key, 1);
	while ((walk = next_within(&peek, ForwardScanDirection, &entries)) == Walk::row)
		count_row(asked, read_row(asked->pending, peek.slot));
	asked->held.all_held_back = walk == Walk::end;
	end_peek(&peek);
}

bool
is_of(const Asked *asked, TupleTableSlot *slot)
{
	bool isnull;

	return equal(DatumGetTextPP(asked->pending->get(slot, pending_col::queue, &isnull)), asked->queue);
}

// Among too many due rows, expired leases are counted by their own index.
void
walk_expired(Asked *asked)
{
	int64 entries = asked->limit;
	int64 expired = 0;
	ScanKeyData keys[2];
	Peek peek;

	begin_peek(&peek, asked->pending, pending_index::lease, 2);
	key_compares(&keys[0], peek.index, 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				 TimestampTzGetDatum(IsolationUsesXactSnapshot() ? DT_NOBEGIN : lease_floor()));
	key_compares(&keys[1], peek.index, 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(asked->now));
	start_peek(&peek, keys, 2);
	while (next_within(&peek, ForwardScanDirection, &entries) == Walk::row)
		expired += is_of(asked, peek.slot);
	end_peek(&peek);
	asked->held.expired = Max(asked->held.expired, expired);
}

// Ids ascend with time: the first row of the queue is its oldest.
void
walk_oldest(Asked *asked)
{
	int64 entries = asked->limit;
	bool found = false;
	Peek peek;

	begin_peek(&peek, asked->pending, primary_key, 0);
	start_peek(&peek, nullptr, 0);
	while (!found && next_within(&peek, ForwardScanDirection, &entries) == Walk::row)
	{
		TimestampTz created;

		if (!is_of(asked, peek.slot))
			continue;
		created = read_row(asked->pending, peek.slot).created_at;
		found = !TIMESTAMP_NOT_FINITE(created);
		if (found)
			asked->held.oldest = Min(asked->held.oldest, created);
	}
	end_peek(&peek);
}

void
walk_dead(Asked *asked, Call *call)
{
	Table *dead = open(call, dead_shape, reads);
	int64 entries = asked->limit;
	ScanKeyData key;
	Peek peek;
	Walk walk;

	begin_peek(&peek, dead, dead_index::open, 1);
	key_equals(&key, peek.index, 1, F_TEXTEQ, PointerGetDatum(asked->queue));
	start_peek(&peek, &key, 1);
	while ((walk = next_within(&peek, ForwardScanDirection, &entries)) == Walk::row)
		asked->held.dead++;
	asked->held.all_dead = walk == Walk::end;
	end_peek(&peek);
}

int64
pending_seen(const Held *held)
{
	return held->due + held->scheduled + held->waiting + held->leased + held->expired;
}

// If more was read than is kept, there are rows that no commit announced, such as restored dead letters.
bool
is_below_what_was_read(const Held *held, QueueSlot *slot)
{
	return kept(slot, Kept::pending) < pending_seen(held) || kept(slot, Kept::leased) < held->leased + held->expired ||
		   kept(slot, Kept::dead) < held->dead || kept(slot, Kept::waiting) < held->waiting;
}

// The rest follows from the totals. No number is less than what was read.
void
complete_from_totals(Held *held, QueueSlot *slot)
{
	int64 total = Max(kept(slot, Kept::pending), pending_seen(held));
	int64 leased = Max(kept(slot, Kept::leased), held->leased + held->expired);

	held->dead = held->all_dead ? held->dead : Max(kept(slot, Kept::dead), held->dead);
	held->waiting = held->all_held_back ? held->waiting : Max(kept(slot, Kept::waiting), held->waiting);
	if (held->all_due && held->all_later)
		return;
	// Of all leases those that are not among the later rows have expired.
	if (held->all_later && held->all_held_back)
		held->expired = Max(leased - held->leased, held->expired);
	if (!held->all_later)
	{
		int64 rest;

		held->leased = Max(leased - held->expired, held->leased);
		rest = total - held->due - held->waiting - held->expired - held->leased;
		if (!held->all_due)
			rest = Min(rest, static_cast<int64>(pg_atomic_read_u64(&slot->scheduled)));
		held->scheduled = Max(rest, held->scheduled);
	}
	if (!held->all_due)
		held->due = Max(total - held->scheduled - held->waiting - held->leased - held->expired, held->due);
}

void
find_out(Asked *asked, Call *call)
{
	asked->held.oldest_due = asked->held.oldest = DT_NOEND;
	asked->now = call->now;
	asked->limit = Max(share_of_limit(call), 1);
	asked->ref = queue_ref(text_to_cstring(asked->queue), false);
	asked->pending = open(call, pending_shape, reads);
	walk_due(asked);
	walk_held_back(asked);
	if (!asked->held.all_due)
		walk_expired(asked);
	if (!asked->held.all_due || !asked->held.all_later || !asked->held.all_held_back)
		walk_oldest(asked);
	walk_dead(asked, call);
}

Datum
seconds(TimestampTz from, TimestampTz to)
{
	return Float8GetDatum(static_cast<double>(to - from) / USECS_PER_SEC);
}

} // namespace

OUTBOX_FUNCTION(outbox_queue_status)
{
	constexpr int columns = 11;
	TupleDesc desc = single_row_desc(fcinfo, columns);
	Asked asked = {};
	Held *held = &asked.held;
	const char *how = "exact";
	TimestampTz counted = 0;
	bool nulls[columns] = {};
	Call call;

	asked.queue = PG_GETARG_TEXT_PP(0);
	begin_reading(&call);
	find_out(&asked, &call);
	end_reading(&call);
	counted = asked.ref.slot != nullptr ? counted_at(asked.ref.slot) : 0;
	if (!held->all_due || !held->all_later || !held->all_held_back || !held->all_dead)
	{
		if (counted != 0 && is_below_what_was_read(held, asked.ref.slot))
		{
			counted = 0;
			pg_atomic_write_u64(&asked.ref.slot->counted_at, 0); // to be counted again
		}
		how = counted != 0 ? "kept" : "at least";
	}
	if (counted != 0)
		complete_from_totals(held, asked.ref.slot);

	Datum values[columns] = {Int64GetDatum(pending_seen(held)), Int64GetDatum(held->due),
							 Int64GetDatum(held->leased),       Int64GetDatum(held->expired),
							 Int64GetDatum(held->scheduled),    Int64GetDatum(held->waiting),
							 Int64GetDatum(held->dead),         seconds(held->oldest_due, asked.now),
							 seconds(held->oldest, asked.now),  CStringGetTextDatum(how),
							 TimestampTzGetDatum(counted)};

	nulls[7] = held->oldest_due == DT_NOEND;
	nulls[8] = held->oldest == DT_NOEND;
	nulls[10] = counted == 0;
	return single_row(desc, values, nulls);
}

} // namespace outbox
