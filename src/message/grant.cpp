// See grant.h.

#include "message/grant.h"

#include "commit/rate_limit.h"
#include "commit/reservation.h"
#include "commit/transaction.h"
#include "message/due.h"
#include "message/fair.h"
#include "message/id_set.h"
#include "message/rate_table.h"
#include "rows/probe.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// Leases of the queue, those included that open transactions make or clear. No floor: it may be above what is not
// committed. Only those that end after that time.
int
count_leases(Call *call, const Queue *queue, TimestampTz after)
{
	Table *table = pending(call);
	IdSet found = make_id_set();
	Probe probe;
	bool isnull;

	begin_probe(&probe, table, own_index(table, pending_index::lease), 0);
	start_probe(&probe, nullptr, 0);
	while (next_row(&probe))
	{
		CHECK_FOR_INTERRUPTS();
		if (equal(DatumGetTextPP(table->get(probe.slot, pending_col::queue, &isnull)), queue->name) &&
			DatumGetTimestampTz(table->get(probe.slot, pending_col::lease_expires_at, &isnull)) > after)
			put_id(&found, to_uuid(table->get(probe.slot, pending_col::outbox_id, &isnull)));
	}
	end_probe(&probe);
	return drop_doubles(&found);
}

void
count_and_grant(Call *call, Grant *grant, int wanted)
{
	const Queue *queue = grant->queue;
	uint32 begun;
	int64 out;
	int count;

	if (!try_to_lock_queue(queue->name, ExclusiveLock))
		return;
	begun = begin_lease_count(queue->name);
	OUTBOX_STOP_POINT("grant_before_count");
	count = count_leases(call, queue, DT_NOBEGIN);
	OUTBOX_STOP_POINT("grant_after_count");
	out = end_lease_count(queue->name, begun, count, queue->max_in_flight);
	grant->count = reserve_leases(queue->name, wanted, queue->max_in_flight);
	grant->locked = grant->count == in_flight_unknown;
	if (grant->locked)
		grant->count = static_cast<int>(Max(Min(wanted, queue->max_in_flight - out), 0));
	else
		unlock_queue(queue->name, ExclusiveLock);
}

void
grant_places(Call *call, Grant *grant)
{
	const Queue *queue = grant->queue;

	grant->count = reserve_leases(queue->name, grant->wanted, queue->max_in_flight);
	if (grant->count == in_flight_unknown)
	{
		grant->count = 0;
		count_and_grant(call, grant, grant->wanted);
	}
	grant->is_full = grant->count < grant->wanted;
}

core::Rate
rate_of_queue(const Queue *queue)
{
	return core::rate_of(queue->rate_limit, queue->rate_burst);
}

void
grant_rate(Call *call, Grant *grant)
{
	const Queue *queue = grant->queue;
	core::Rate rate = rate_of_queue(queue);
	int wanted = grant->count;

	grant->count = spend_rate(queue->name, rate, wanted);
	grant->in_table = grant->count == rate_unknown;
	if (grant->in_table)
		grant->count = begin_spending(call, queue, rate, wanted);
	grant->spends = grant->count > 0;
}

void
return_what_is_left(Call *call, Grant *grant, int taken)
{
	const Queue *queue = grant->queue;

	if (queue->max_in_flight > 0)
		return_leases(queue->name);
	if (grant->spends && grant->in_table)
		end_spending(call, queue, rate_of_queue(queue), taken);
	else if (grant->spends)
		return_rate(queue->name, rate_of_queue(queue), grant->count - taken);
	if (grant->locked)
		unlock_queue(queue->name, ExclusiveLock);
	grant->locked = grant->spends = false;
}

// Whether a claim would get more, by what shared memory knows. If not, a session that waits is woken when it would.
bool
gets_more(const Queue *queue)
{
	bool has_place = queue->max_in_flight == 0 || find_places(queue->name, 1, queue->max_in_flight) > 0;
	bool has_rate = queue->rate_limit <= 0 || find_rate(queue->name, rate_of_queue(queue), 1) > 0;

	return has_place && has_rate;
}

} // namespace

Grant
begin_grant(Call *call, const Queue *queue, int wanted)
{
	Grant grant = {queue, wanted, wanted};

	if (queue->max_in_flight > 0)
		grant_places(call, &grant);
	if (queue->rate_limit > 0 && grant.count > 0)
		grant_rate(call, &grant);
	return grant;
}

void
drop_grant(Call *call, Grant *grant)
{
	return_what_is_left(call, grant, 0);
}

void
end_grant(Call *call, Grant *grant, int taken)
{
	const Queue *queue = grant->queue;

	if (grant->wanted == 0)
		return;
	return_what_is_left(call, grant, taken);
	if (taken < grant->count || grant->count == grant->wanted || !has_due(call, queue))
		return;
	note_count(queue->name, Counter::limited);
	// What has become free meanwhile may be for a session that was never refused.
	if (!gets_more(queue))
		return;
	note_due(queue->name, call->now, call->now);
	// At once: this claim itself may wait.
	rouse(mask_of(queue_ref(text_to_cstring(queue->name)).slot));
}

namespace {

// A claim that finds the limit reached repairs expired leases where no background worker does.
bool
has_place(Call *call, const Queue *queue)
{
	int places = find_places(queue->name, 1, queue->max_in_flight);

	if (places == in_flight_unknown)
	{
		Grant grant = {queue, 1, 1};

		grant_places(call, &grant);
		places = grant.count;
		drop_grant(call, &grant);
	}
	return places > 0 || (!is_alive(my_database()) && count_leases(call, queue, call->now) < queue->max_in_flight);
}

bool
has_rate(Call *call, const Queue *queue)
{
	core::Rate rate = rate_of_queue(queue);
	int found = find_rate(queue->name, rate, 1);

	return (found == rate_unknown ? find_spending(call, queue, rate, 1) : found) > 0;
}

} // namespace

bool
is_granted_any(Call *call, const Queue *queue)
{
	return (queue->max_in_flight == 0 || has_place(call, queue)) && (queue->rate_limit <= 0 || has_rate(call, queue));
}

namespace {

int
grantable(const Queue *queue, int wanted)
{
	int places = queue->max_in_flight == 0 ? wanted : find_places(queue->name, wanted, queue->max_in_flight);
	int most = places == in_flight_unknown ? wanted : places;
	int found = queue->rate_limit <= 0 ? most : find_rate(queue->name, rate_of_queue(queue), most);

	return found == rate_unknown ? most : found;
}

} // namespace

int
count_claimable(Call *call, const Queue *queue, int most)
{
	if (!has_due(call, queue) || grantable(queue, 1) == 0)
		return 0;
	return grantable(queue, queue->max_in_flight_per_key > 0 ? count_turns_due(call, queue, most)
															 : count_due(call, queue, most));
}

} // namespace outbox
