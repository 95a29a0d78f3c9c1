// See recount.h.

#include "upkeep/recount.h"

#include "commit/shared.h"
#include "server/settings.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

constexpr int64 pause_us = 10 * USECS_PER_MINUTE;

// The counts of a slot before the snapshot was taken.
struct Before {
	QueueRef ref;
	int64 kept[kept_counts];
	int64 counted[kept_counts];
	int64 scheduled;
};

List *
read_slots()
{
	List *slots = NIL;

	each_slot(MyDatabaseId, [&](QueueSlot *slot) {
		Before *before = static_cast<Before *>(palloc0(sizeof(Before)));

		before->ref = ref_to(slot);
		for (int i = 0; i < kept_counts; i++)
			before->kept[i] = kept(slot, static_cast<Kept>(i));
		slots = lappend(slots, before);
	});
	return slots;
}

int64
int_column(int row, int column)
{
	bool isnull;
	Datum value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

void
take_row(List *slots, int row)
{
	const char *queue = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 1);
	ListCell *cell;

	foreach (cell, slots)
	{
		Before *before = static_cast<Before *>(lfirst(cell));

		if (strncmp(before->ref.slot->name, queue, NAMEDATALEN - 1) != 0)
			continue;
		for (int i = 0; i < kept_counts; i++)
			before->counted[i] = int_column(row, 2 + i);
		before->scheduled = int_column(row, 2 + kept_counts);
	}
}

// Later commits have added their changes, so the correction is a difference.
void
correct(Before *before, TimestampTz now)
{
	QueueSlot *slot = before->ref.slot;

	if (!is_still(before->ref))
		return;
	for (int i = 0; i < kept_counts; i++)
		pg_atomic_fetch_add_u64(&slot->kept[i], before->counted[i] - before->kept[i]);
	pg_atomic_write_u64(&slot->scheduled, static_cast<uint64>(before->scheduled));
	pg_write_barrier();
	pg_atomic_write_u64(&slot->counted_at, static_cast<uint64>(now));
}

} // namespace

bool
lacks_count()
{
	TimestampTz latest = GetCurrentTimestamp() - pause_us;
	bool lacks = false;

	each_slot(MyDatabaseId,
			  [&](QueueSlot *slot) { lacks = lacks || (!is_dropped(slot) && counted_at(slot) < latest); });
	return lacks;
}

void
count_queues()
{
	List *slots = read_slots();
	TimestampTz now = GetCurrentTimestamp();
	ListCell *cell;

	OUTBOX_STOP_POINT("count_before_snapshot");
	SPI_connect();
	if (SPI_execute(
			"SELECT queue, sum(pending)::int8, sum(leased)::int8, sum(dead)::int8, sum(waiting)::int8, "
			"sum(scheduled)::int8 FROM ("
			"SELECT queue, count(*) AS pending, count(lease_expires_at) AS leased, 0 AS dead, "
			"count(*) FILTER (WHERE lease_expires_at IS NULL AND held_back) AS waiting, "
			"count(*) FILTER (WHERE lease_expires_at IS NULL AND NOT held_back AND next_attempt_at > now()) AS scheduled "
			"FROM outbox.pending GROUP BY queue UNION ALL "
			"SELECT queue, 0, 0, count(*), 0, 0 FROM outbox.dead WHERE acknowledged_at IS NULL GROUP BY queue) c "
			"GROUP BY queue",
			false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not count");
	OUTBOX_STOP_POINT("count_after_snapshot");
	for (uint64 row = 0; row < SPI_processed; row++)
		take_row(slots, static_cast<int>(row));
	SPI_finish();
	foreach (cell, slots)
		correct(static_cast<Before *>(lfirst(cell)), now);
}

} // namespace outbox
