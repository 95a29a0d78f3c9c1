// See grant.h.

#include "message/grant.h"

#include <algorithm>

#include "commit/reservation.h"
#include "rows/probe.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

struct Found {
	core::Uuid *ids;
	int count;
	int room;
};

void
add(Found *found, const core::Uuid &id)
{
	if (found->count == found->room)
	{
		found->room *= 2;
		found->ids =
			static_cast<core::Uuid *>(repalloc(found->ids, sizeof(core::Uuid) * static_cast<Size>(found->room)));
	}
	found->ids[found->count++] = id;
}

// Each message once: the versions of a row that changes are in the index side by side.
int
count_distinct(Found *found)
{
	std::sort(found->ids, found->ids + found->count,
			  [](const core::Uuid &a, const core::Uuid &b) { return compare(a, b) < 0; });
	return static_cast<int>(std::unique(found->ids, found->ids + found->count,
										[](const core::Uuid &a, const core::Uuid &b) { return equal(a, b); }) -
							found->ids);
}

// Leases of the queue, those included that open transactions make or clear. No floor: it may be above what is not
// committed.
int
count_leases(Call *call, const Queue *queue)
{
	Table *table = pending(call);
	Found found = {static_cast<core::Uuid *>(palloc(sizeof(core::Uuid) * 64)), 0, 64};
	Probe probe;
	bool isnull;

	begin_probe(&probe, table, own_index(table, pending_index::lease), 0);
	start_probe(&probe, nullptr, 0);
	while (next_row(&probe))
	{
		CHECK_FOR_INTERRUPTS();
		if (equal(DatumGetTextPP(table->get(probe.slot, pending_col::queue, &isnull)), queue->name))
			add(&found, to_uuid(table->get(probe.slot, pending_col::outbox_id, &isnull)));
	}
	end_probe(&probe);
	return count_distinct(&found);
}

// The lock conflicts with itself alone: producers and drop_queue share another mode of it.
void
counting_tag(LOCKTAG *tag, const Queue *queue)
{
	queue_lock_tag(tag, relation_oid(queues_shape.name), queue->name);
}

bool
try_to_count(const Queue *queue)
{
	LOCKTAG tag;

	counting_tag(&tag, queue);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
stop_counting(const Queue *queue)
{
	LOCKTAG tag;

	counting_tag(&tag, queue);
	LockRelease(&tag, ExclusiveLock, false);
}

void
count_and_grant(Call *call, Grant *grant, int wanted)
{
	const Queue *queue = grant->queue;
	uint32 begun;
	int64 out;

	if (!try_to_count(queue))
		return;
	begun = begin_lease_count(queue->name);
	OUTBOX_STOP_POINT("grant_before_count");
	out = end_lease_count(queue->name, begun, count_leases(call, queue));
	grant->count = reserve_leases(queue->name, wanted, queue->max_in_flight);
	grant->locked = grant->count == in_flight_unknown;
	if (grant->locked)
		grant->count = static_cast<int>(Max(Min(wanted, queue->max_in_flight - out), 0));
	else
		stop_counting(queue);
}

} // namespace

Grant
begin_grant(Call *call, const Queue *queue, int wanted)
{
	Grant grant = {queue, wanted, false};

	if (queue->max_in_flight == 0)
		return grant;
	grant.count = reserve_leases(queue->name, wanted, queue->max_in_flight);
	if (grant.count != in_flight_unknown)
		return grant;
	grant.count = 0;
	count_and_grant(call, &grant, wanted);
	return grant;
}

void
end_grant(Grant *grant)
{
	if (grant->queue->max_in_flight == 0)
		return;
	return_leases(grant->queue->name);
	if (grant->locked)
		stop_counting(grant->queue);
	grant->locked = false;
}

} // namespace outbox
