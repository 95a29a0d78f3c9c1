// inbox.finish(): notes how long the processing of an event took, from its receipt to now.
//
// Guarantee: it updates the event's row under the lock of its key, so a look-up of the event, which reads outside
// of any snapshot, finds one of the row's versions.

#include "inbox/intake.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

namespace {

int32
milliseconds_since(TimestampTz then, TimestampTz now)
{
	return static_cast<int32>(Min(Max((now - then) / 1000, 0), PG_INT32_MAX));
}

// The row on which the probe stands, with its duration.
TupleTableSlot *
finished_row(const Intake *intake, const Shelf *shelf)
{
	TupleTableSlot *found = shelf->probe.slot;
	TupleTableSlot *row = changed_row(shelf->table);
	bool isnull;
	TimestampTz received = DatumGetTimestampTz(shelf->table->get(found, events_col::consumed_at, &isnull));

	slot_getallattrs(found);
	for (int i = 0; i < found->tts_tupleDescriptor->natts; i++)
	{
		row->tts_values[i] = found->tts_values[i];
		row->tts_isnull[i] = found->tts_isnull[i];
	}
	set(shelf->table, row, events_col::processing_duration_ms,
		Int32GetDatum(milliseconds_since(received, intake->now)));
	return row;
}

[[noreturn]] void
was_not_received(const Intake *intake, const core::Uuid &id)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("consumer \"%s\" has not received event %s", shown(intake->consumer), shown(id)),
			 errhint("Call inbox.finish() in the transaction in which inbox.receive() returned true, or later.")));
}

// What came of one look.
struct Finish {
	Obstacle obstacle;
	Shelf *shelf;        // nullptr: not found
	ItemPointerData tid; // of the row
	Changed changed;
};

Finish
try_to_finish(Intake *intake, const core::Uuid &id)
{
	const core::Uuid *sought = &id;
	Finish finish = {open_shelves(intake, &sought, 1), nullptr, {}, Changed::busy};
	Probe *probe;

	finish.shelf = finish.obstacle ? nullptr : find_event(intake, id);
	if (finish.shelf == nullptr)
		return finish;
	probe = &finish.shelf->probe;
	finish.tid = probe->slot->tts_tid;
	finish.obstacle.unsettled = TransactionIdIsValid(probe->inserter()) ? probe->inserter() : probe->changer();
	if (!finish.obstacle)
		finish.changed = update_row(finish.shelf->table, &finish.tid, finished_row(intake, finish.shelf), Wait::never);
	rest_probe(probe);
	return finish;
}

// After the lock of the key was given back; then it is looked again.
void
wait_to_finish(Intake *intake, const core::Uuid &id, Finish *finish)
{
	if (finish->obstacle.unknown || (finish->shelf == nullptr && !finish->obstacle))
		was_not_received(intake, id);
	if (finish->obstacle)
		overcome(intake, finish->obstacle);
	else
		hold_row(finish->shelf->table, &finish->tid, Wait::for_row);
}

} // namespace

OUTBOX_FUNCTION(outbox_inbox_finish)
{
	const text *consumer = consumer_argument(fcinfo, 0);
	core::Uuid id = to_uuid(required_datum(fcinfo, 1, "event_id"));
	Intake intake;

	begin_intake(&intake, "inbox.finish()", consumer, updates);
	for (bool done = false; !done;)
	{
		Finish finish;
		KeyLock held;

		CHECK_FOR_INTERRUPTS();
		lock_event(&intake, event_hash(&intake, id), &held);
		finish = try_to_finish(&intake, id);
		unlock_key(&held);
		done = finish.changed == Changed::done;
		if (!done)
			wait_to_finish(&intake, id, &finish);
	}
	end_intake(&intake);
	PG_RETURN_VOID();
}

} // namespace outbox
