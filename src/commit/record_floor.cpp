// See record_floor.h.
//
// Who may write the copy: publish_floor(), which has written the sequence before it looks for the slot, and
// share_floor(), whose process keeps the slot while it lives. So a copy that is not 0 is never older than the sequence
// was when its publication returned. Both only raise it.

#include "commit/record_floor.h"

#include "commit/shared.h"
#include "rows/call.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// The copy of an unused floor, so that it is not 0.
constexpr TimestampTz no_floor = 1;

// Of the transaction that recorded last.
struct {
	uint64 transaction;
	TimestampTz time;
} last;

Oid
floor_sequence()
{
	return relation_oid("seal_floor");
}

void
raise_copy(DatabaseSlot *slot, TimestampTz floor)
{
	uint64 known = pg_atomic_read_u64(&slot->record_floor);

	while (static_cast<int64>(known) < floor &&
		   !pg_atomic_compare_exchange_u64(&slot->record_floor, &known, static_cast<uint64>(floor)))
		;
}

TimestampTz
floor_now()
{
	DatabaseSlot *slot = my_database();
	uint64 known = slot != nullptr ? pg_atomic_read_u64(&slot->record_floor) : 0;

	return known != 0 ? static_cast<TimestampTz>(known) : published_floor();
}

// The floor that was published before the transaction got its id is enough for all of its records.
void
begin_records()
{
	uint64 transaction = U64FromFullTransactionId(GetTopFullTransactionId());

	OUTBOX_STOP_POINT("record_before_floor");
	if (last.transaction != transaction)
		last = {transaction, floor_now()};
}

} // namespace

TimestampTz
record_time(TimestampTz *clock)
{
	TimestampTz now;

	begin_records();
	OUTBOX_STOP_POINT("record_before_clock");
	now = GetCurrentTimestamp();
	last.time = Max(last.time, now);
	if (clock != nullptr)
		*clock = now;
	return last.time;
}

TimestampTz
published_floor()
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum floor;

	InitFunctionCallInfoData(*fcinfo, nullptr, 1, InvalidOid, nullptr, nullptr);
	fcinfo->args[0] = {ObjectIdGetDatum(floor_sequence()), false};
	floor = pg_sequence_last_value(fcinfo);
	return fcinfo->isnull ? no_floor : Max(DatumGetInt64(floor), no_floor);
}

void
publish_floor(TimestampTz floor)
{
	DatabaseSlot *slot;

	begin_records();
	if (published_floor() < floor)
		DirectFunctionCall2(setval_oid, ObjectIdGetDatum(floor_sequence()), Int64GetDatum(floor));
	slot = my_database();
	if (slot != nullptr)
		raise_copy(slot, floor);
	last.time = Max(last.time, floor);
	pg_memory_barrier();
}

void
share_floor()
{
	DatabaseSlot *slot = my_database();

	if (slot != nullptr)
		raise_copy(slot, published_floor());
}

} // namespace outbox
