// inbox.receive() and inbox.receive_batch(): whether an event is new to its consumer.
//
// Guarantees: of any number of transactions that receive an event, one is told that it is new and commits. A
// second one waits for the end of the first, open or prepared; if that rolls back, it is told that the event is
// new. An event that was put aside (inbox.failed) is not new. A batch has the outcome of its events one by one.
//
// Shape: events are received in the order of a hash of their keys, so batches do not deadlock each other. Some are
// locked, looked up and inserted together; while a transaction is waited for, no key is locked, and every event
// before the one in its hands has been inserted.

#include <algorithm>

#include "inbox/intake.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/json_elements.h"
#include "server/spi.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// Few enough for the shared lock table, many enough for one insertion to serve them.
constexpr int most_at_a_time = 16;

struct Event {
	core::Uuid id;
	uint64 hash;
	const text *source;
	const text *type;
	Datum payload; // 0 = none
	bool has_version;
	int32 version;
	bool fresh;  // out
	bool failed; // out: it did so before
};

void
fill_event(const Intake *intake, const Table *table, TupleTableSlot *row, const Event *event)
{
	set(table, row, events_col::consumed_at, TimestampTzGetDatum(intake->now));
	set(table, row, events_col::event_id, in_place(event->id));
	set_text(table, row, events_col::consumer, intake->consumer);
	set_text(table, row, events_col::source, event->source);
	set_text(table, row, events_col::event_type, event->type);
	if (event->payload != 0)
		set(table, row, events_col::payload, event->payload);
	if (event->has_version)
		set(table, row, events_col::schema_version, Int32GetDatum(event->version));
}

// Those of the first events that are new, into the newest partition.
void
write_events(Intake *intake, Event *const *events, int count)
{
	Event *fresh[most_at_a_time];
	Table *newest;
	int n = 0;

	for (int i = 0; i < count; i++)
		if (events[i]->fresh)
			fresh[n++] = events[i];
	if (n == 0)
		return;
	newest = static_cast<Shelf *>(linitial(intake->shelves))->table;
	write_rows(
		fresh, n, [&](const Event *) { return newest; },
		[&](const Table *table, TupleTableSlot *row, const Event *event) { fill_event(intake, table, row, event); });
}

Obstacle
look_up_event(Intake *intake, Event *event)
{
	TransactionId inserter;
	Shelf *shelf;
	bool dead;

	event->failed = has_failed(intake, event->id, &dead);
	shelf = find_event(intake, event->id);
	event->fresh = shelf == nullptr && !dead;
	if (shelf == nullptr)
		return {};
	inserter = shelf->probe.inserter();
	rest_probe(&shelf->probe);
	return {false, inserter};
}

// The first of the events, as many as nothing stands in the way of. How many these were.
int
receive_some(Intake *intake, Event *const *events, int count, Obstacle *obstacle)
{
	KeyLock held[most_at_a_time];
	const core::Uuid *ids[most_at_a_time] = {};
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		lock_event(intake, events[i]->hash, &held[i]);
		ids[i] = &events[i]->id;
	}
	*obstacle = open_shelves(intake, ids, count);
	OUTBOX_STOP_POINT("inbox_looks");
	while (!*obstacle && n < count)
	{
		*obstacle = look_up_event(intake, events[n]);
		n += *obstacle ? 0 : 1;
	}
	if (n > 0)
		write_events(intake, events, n);
	for (int i = 0; i < count; i++)
		unlock_key(&held[i]);
	return n;
}

// They succeed now.
void
forget_failures(const Intake *intake, const Event *const *events, int count)
{
	Oid types[] = {TEXTOID, UUIDOID};

	for (int i = 0; i < count; i++)
	{
		Datum values[] = {PointerGetDatum(intake->consumer), in_place(events[i]->id)};

		if (!events[i]->fresh || !events[i]->failed)
			continue;
		SPI_connect();
		// The search_path is the caller's.
		SPI_execute_with_args("DELETE FROM inbox.failures WHERE consumer OPERATOR(pg_catalog.=) $1 "
							  "AND event_id OPERATOR(pg_catalog.=) $2",
							  2, types, values, nullptr, false, 0);
		SPI_finish();
	}
}

// By a sequence: it waits for no transaction, and needs no commit.
void
count_duplicates(const Intake *intake, int64 count)
{
	Oid sequence = get_relname_relid(psprintf("duplicates_%d", intake->consumer_id), get_namespace_oid("inbox", false));

	for (int64 i = 0; OidIsValid(sequence) && i < count; i++)
		nextval_internal(sequence, false);
}

// In the order of their keys. Repeats behind the first are not new.
int
distinct_events(Event *events, int count, Event **distinct)
{
	int n = 0;

	for (int i = 0; i < count; i++)
		distinct[i] = &events[i];
	std::sort(distinct, distinct + count, [](const Event *a, const Event *b) {
		int order = a->hash != b->hash ? (a->hash < b->hash ? -1 : 1) : compare(a->id, b->id);
		return order < 0 || (order == 0 && a < b);
	});
	for (int i = 0; i < count; i++)
		if (i == 0 || !equal(distinct[n - 1]->id, distinct[i]->id))
			distinct[n++] = distinct[i];
	return n;
}

void
receive_events(Intake *intake, Event *events, int count)
{
	Event **distinct = static_cast<Event **>(palloc(sizeof(Event *) * static_cast<Size>(count)));
	int64 duplicates = count;
	int n;

	for (int i = 0; i < count; i++)
		events[i].hash = event_hash(intake, events[i].id);
	n = distinct_events(events, count, distinct);
	for (int done = 0; done < n;)
	{
		Obstacle obstacle = {};

		CHECK_FOR_INTERRUPTS();
		done += receive_some(intake, distinct + done, Min(n - done, most_at_a_time), &obstacle);
		if (obstacle)
			overcome(intake, obstacle);
	}
	for (int i = 0; i < count; i++)
		duplicates -= events[i].fresh ? 1 : 0;
	forget_failures(intake, distinct, n);
	count_duplicates(intake, duplicates);
}

void
check_id(const core::Uuid &id)
{
	refuse_nil_event_id(id, "Pass the event_id that the producer gave this event.");
}

void
check_version(const Event *event)
{
	if (event->has_version)
		check_at_least(event->version, 1, "schema_version");
}

void
read_event_field(const char *name, JsonbValue *value, Event *event, bool *has_id)
{
	auto is = [&](const char *candidate) { return strcmp(name, candidate) == 0; };
	bool absent = value->type == jbvNull;

	if (is("event_id"))
	{
		*has_id = !absent;
		if (!absent)
			event->id = uuid_in_field(name, value);
	}
	else if (is("source"))
		event->source = absent ? nullptr : text_of(name, value);
	else if (is("event_type"))
		event->type = absent ? nullptr : text_of(name, value);
	else if (is("payload"))
		event->payload = absent ? 0 : JsonbPGetDatum(JsonbValueToJsonb(value));
	else if (is("schema_version"))
	{
		event->has_version = !absent;
		if (!absent)
			event->version = int_of(name, value);
	}
	else
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown key \"%s\" in events", shown(cstring_to_text(name))),
						errhint("The keys of an event are event_id, source, event_type, payload and schema_version.")));
}

void
check_present(const text *value, const char *name)
{
	if (value == nullptr)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", name)));
	check_nonempty(value, name);
}

void
read_event(JsonElements *elements, Event *event)
{
	bool has_id = false;
	JsonbValue value;

	while (next_field(elements, &value))
		read_event_field(elements->name, &value, event, &has_id);
	if (!has_id)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("event_id must not be null")));
	check_id(event->id);
	check_present(event->source, "source");
	check_present(event->type, "event_type");
	check_version(event);
}

Event *
read_events(Jsonb *array, int *count)
{
	JsonElements elements;
	Event *events;

	*count = begin_elements(&elements, array, "events");
	events = static_cast<Event *>(palloc0(sizeof(Event) * static_cast<Size>(Max(*count, 1))));
	while (next_element(&elements))
		read_event(&elements, &events[elements.number - 1]);
	end_elements(&elements);
	return events;
}

} // namespace

OUTBOX_FUNCTION(outbox_inbox_receive)
{
	const text *consumer = consumer_argument(fcinfo, 0);
	Event event = {};
	Intake intake;

	event.id = to_uuid(required_datum(fcinfo, 1, "event_id"));
	check_id(event.id);
	event.source = required_nonempty_text(fcinfo, 2, "source");
	event.type = required_nonempty_text(fcinfo, 3, "event_type");
	event.payload = PG_ARGISNULL(4) ? 0 : PG_GETARG_DATUM(4);
	event.has_version = !PG_ARGISNULL(5);
	event.version = event.has_version ? PG_GETARG_INT32(5) : 0;
	check_version(&event);
	begin_intake(&intake, "inbox.receive()", consumer, inserts);
	receive_events(&intake, &event, 1);
	end_intake(&intake);
	PG_RETURN_BOOL(event.fresh);
}

OUTBOX_FUNCTION(outbox_inbox_receive_batch)
{
	const text *consumer = consumer_argument(fcinfo, 0);
	int count;
	Event *events = read_events(DatumGetJsonbP(required_datum(fcinfo, 1, "events")), &count);
	Intake intake;

	begin_results(fcinfo, 1);
	begin_intake(&intake, "inbox.receive_batch()", consumer, inserts);
	if (count > 0)
		receive_events(&intake, events, count);
	end_intake(&intake);
	for (int i = 0; i < count; i++)
	{
		Datum id = in_place(events[i].id);
		bool isnull = false;

		if (events[i].fresh)
			put_result(fcinfo, &id, &isnull);
	}
	return static_cast<Datum>(0);
}

} // namespace outbox
