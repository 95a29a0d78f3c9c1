// The triggers on the extension's tables, all ENABLE ALWAYS: they hold under any session_replication_role.
//
// append_only keeps what was recorded: messages, attempts, audit events, seals, subjects and erasures are never
// updated, deleted or truncated, and pending is never truncated, by any role. Extensions over the core keep tables of
// theirs with it.
//
// pending_changed is for changes that the verbs do not make: SQL, COPY, a restore, replication. Direct access does not
// fire it. Guarantees: scans begin low enough to find the row, as after enqueue or a retry (entries.h). No message
// loses its row, because without it the message is never delivered: a DELETE, or another outbox_id, is refused.
// Replication may delete, because the other server has completed the message.
//
// Two triggers call it. pending_changed, AFTER, notes the new row. pending_changing, BEFORE UPDATE, notes the old one:
// the statement itself may claim before the AFTER triggers fire, and raise a floor above the row.

#include "commit/transaction.h"
#include "rows/shapes.h"
#include "server/values.h"
#include "server/boundary.h"
#include "server/errors.h"

namespace outbox {

namespace {

// False if the row lacks columns of an entry: the table was changed.
bool
read_entry(Relation rel, HeapTuple tuple, Entry *entry)
{
	TupleDesc desc = RelationGetDescr(rel);
	bool all_there = true;
	auto value = [&](int column, bool *isnull) {
		int number = SPI_fnumber(desc, pending_shape.columns[column].name);

		*isnull = true;
		if (number > 0 && TupleDescAttr(desc, number - 1)->atttypid == pending_shape.columns[column].type)
			return heap_getattr(tuple, number, desc, isnull);
		return static_cast<Datum>(0);
	};
	auto required = [&](int column) {
		bool isnull;
		Datum datum = value(column, &isnull);

		all_there &= !isnull;
		return datum;
	};
	Datum queue = required(pending_col::queue);
	Datum priority = required(pending_col::priority);
	Datum next_attempt = required(pending_col::next_attempt_at);
	Datum held_back = required(pending_col::held_back);
	bool unleased;
	Datum expiry = value(pending_col::lease_expires_at, &unleased);

	if (!all_there)
		return false;
	*entry = {DatumGetTextPP(queue),       DatumGetInt16(priority), DatumGetTimestampTz(next_attempt), !unleased,
			  DatumGetTimestampTz(expiry), DatumGetBool(held_back)};
	return true;
}

void
note(void (*what)(const Entry &), Relation rel, HeapTuple tuple)
{
	Entry entry;

	if (read_entry(rel, tuple, &entry))
		what(entry);
}

[[noreturn]] void
refuse(const TriggerData *trigger, const char *detail, const char *hint)
{
	const char *command = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)     ? "UPDATE"
						  : TRIGGER_FIRED_BY_DELETE(trigger->tg_event)   ? "DELETE"
						  : TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) ? "TRUNCATE"
																		 : "this command";

	ereport(ERROR, (errcode(ERRCODE_OUTBOX_APPEND_ONLY),
					errmsg("append-only: %s of table \"%s\" is refused", command,
						   RelationGetRelationName(trigger->tg_relation)),
					errdetail("%s", detail), hint != nullptr ? errhint("%s", hint) : 0));
}

constexpr char never_delivered[] = "A message without its row in outbox.pending is never delivered.";
constexpr char how_to_end[] = "End messages with outbox.complete or outbox.cancel.";

// Whether it is a table of the core. Extensions over it use the same trigger.
bool
is_core(const TriggerData *trigger)
{
	return RelationGetNamespace(trigger->tg_relation) == get_namespace_oid("outbox", true);
}

// Or one of its partitions.
bool
belongs_to(const TriggerData *trigger, const Shape &shape)
{
	return strncmp(RelationGetRelationName(trigger->tg_relation), shape.name, strlen(shape.name)) == 0;
}

bool
same_message(const TriggerData *trigger)
{
	TupleDesc desc = RelationGetDescr(trigger->tg_relation);
	int number = SPI_fnumber(desc, pending_shape.columns[pending_col::outbox_id].name);
	bool isnull[2] = {true, true};
	Datum before;
	Datum after;

	if (number <= 0 || TupleDescAttr(desc, number - 1)->atttypid != UUIDOID)
		return false;
	before = heap_getattr(trigger->tg_trigtuple, number, desc, &isnull[0]);
	after = heap_getattr(trigger->tg_newtuple, number, desc, &isnull[1]);
	return !isnull[0] && !isnull[1] && equal(to_uuid(before), to_uuid(after));
}

void
refuse_to_lose_a_message(const TriggerData *trigger)
{
	if (IsLogicalWorker() || TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		return;
	if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event) || !same_message(trigger))
		refuse(trigger, never_delivered, how_to_end);
}

} // namespace

OUTBOX_FUNCTION(outbox_append_only)
{
	TriggerData *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("outbox.append_only must be called as a trigger")));
	if (is_core(trigger) && belongs_to(trigger, pending_shape))
		refuse(trigger, never_delivered, how_to_end);
	if (is_core(trigger) && (belongs_to(trigger, messages_shape) || belongs_to(trigger, attempts_shape)))
		refuse(trigger, "Messages and attempts never change.", how_to_end);
	if (is_core(trigger) && belongs_to(trigger, audit_events_shape))
		refuse(trigger, "Audit events never change.", nullptr);
	refuse(trigger, psprintf("Rows of \"%s\" never change.", RelationGetRelationName(trigger->tg_relation)), nullptr);
}

OUTBOX_FUNCTION(outbox_pending_changed)
{
	const TriggerData *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("outbox.pending_changed must be called as a row trigger")));
	refuse_to_lose_a_message(trigger);
	if (TRIGGER_FIRED_BEFORE(trigger->tg_event) && TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
	{
		note(remember_removed, trigger->tg_relation, trigger->tg_trigtuple);
		return PointerGetDatum(trigger->tg_newtuple);
	}
	if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		note(note_removed, trigger->tg_relation, trigger->tg_trigtuple);
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		note(note_made, trigger->tg_relation, trigger->tg_trigtuple);
	else if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		note(note_made, trigger->tg_relation, trigger->tg_newtuple);
	return PointerGetDatum(nullptr);
}

} // namespace outbox
