// replay: a dead letter becomes a new message, at most once.
//
// Guarantees: the row in outbox.replays decides. If two sessions replay one message, the second waits
// for the first. After a commit it gets P7005, after a rollback it replays, in every isolation level.

#include "server/args.h"
#include "server/boundary.h"
#include "rows/key_lock.h"
#include "server/errors.h"
#include "message/audit_event.h"
#include "message/lease.h"
#include "message/enqueueing.h"
#include "message/dead.h"
#include "message/order.h"

namespace outbox {

namespace {

[[noreturn]] void
not_a_dead_letter(const core::Uuid &id, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_OUTBOX_NOT_PENDING),
					errmsg("NOT_PENDING: message %s is not a dead letter", shown(id)), errdetail("%s", detail)));
}

// Its terminal attempt must be FAILED.
void
require_dead_letter(Call *call, const core::Uuid &id)
{
	core::Record state = recorded_end(call, id).state;

	if (state == core::Record::dispatched)
		not_a_dead_letter(id, "It was delivered.");
	if (state != core::Record::failed)
		not_a_dead_letter(id, "It has not ended, or there is no such message.");
	expect(core::State::failed, core::Event::replay, false);
}

Message
read_message(Call *call, const core::Uuid &id, text **queue)
{
	using namespace messages_col;
	Table *leaf = leaf_of(call, messages_shape, id, reads);
	Message message = {};
	Probe *probe = probe_id(leaf, id);
	bool isnull;
	Datum value;
	auto read_text = [&](int column) { return copied_text(leaf, probe->slot, column); };

	if (!next_settled(probe, ForwardScanDirection))
		not_a_dead_letter(id, "The message itself is not there any more.");
	*queue = read_text(messages_col::queue);
	message.event_type = read_text(event_type);
	message.aggregate_type = read_text(aggregate_type);
	message.aggregate_id = read_text(aggregate_id);
	message.partition_key = read_text(partition_key);
	message.sequence_id = DatumGetInt64(leaf->get(probe->slot, sequence_id, &isnull));
	message.routing_key = read_text(routing_key);
	value = leaf->get(probe->slot, payload, &isnull);
	if (!isnull)
		message.payload = DatumGetJsonbPCopy(value);
	value = leaf->get(probe->slot, payload_bytes, &isnull);
	if (!isnull)
		message.payload_bytes = DatumGetByteaPCopy(value);
	message.content_type = read_text(content_type);
	message.headers = DatumGetJsonbPCopy(leaf->get(probe->slot, headers, &isnull));
	message.priority = DatumGetInt16(leaf->get(probe->slot, priority, &isnull));
	message.max_attempts = DatumGetInt32(leaf->get(probe->slot, max_attempts, &isnull));
	message.max_attempts = isnull ? 0 : message.max_attempts;
	message.has_event_id = true;
	message.event_id = to_uuid(leaf->get(probe->slot, event_id, &isnull));
	message.is_replay = true;
	message.replay_of = id;
	rest_probe(probe);
	return message;
}

// Returns with the key locked. The caller inserts the row of the replay.
void
claim_replay(Table *replays, Probe *probe, const core::Uuid &id, KeyLock *held)
{
	ScanKeyData key;
	bool isnull;

	key_equals(&key, primary_index(replays), 1, F_UUID_EQ, from_uuid(id));
	// The tail of the id is its random part.
	if (look_up_latched(probe, &key, 1, ForwardScanDirection, held, id.bytes + UUID_LEN - 6, 6))
		not_a_dead_letter(id, psprintf("It was replayed as %s.",
									   shown(to_uuid(replays->get(probe->slot, replays_col::replay_id, &isnull)))));
}

void
record_replay(Call *call, const text *queue, const core::Uuid &id, const core::Uuid &replay_id)
{
	JsonObject detail = begin_object();
	AuditEvent event = {"MESSAGE_REPLAYED", queue, nullptr, &id, nullptr, 1};

	put_field(&detail, "replay_id", shown(replay_id));
	event.detail = end_object(&detail);
	record_event(call, event);
}

} // namespace

OUTBOX_FUNCTION(outbox_replay)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	Message message;
	text *queue;
	Table *replays;
	TupleTableSlot *row;
	KeyLock latch;
	const Queue *held;
	Probe probe;
	Call call;

	begin_call(&call, "replay()");
	begin_enqueueing(&call);
	require_dead_letter(&call, id);
	message = read_message(&call, id, &queue);
	message.has_deliver_at = !PG_ARGISNULL(1);
	message.deliver_at = message.has_deliver_at ? PG_GETARG_TIMESTAMPTZ(1) : 0;
	check_message(&message);

	draw_ids(&message, 1);
	replays = open(&call, replays_shape, inserts);
	row = new_row(replays);
	begin_probe(&probe, replays, primary_index(replays), 1);
	claim_replay(replays, &probe, id, &latch);
	set(replays, row, replays_col::outbox_id, from_uuid(id));
	set(replays, row, replays_col::replay_id, from_uuid(message.id));
	set(replays, row, replays_col::created_at, TimestampTzGetDatum(call.now));
	insert_rows(replays, &row, 1);
	unlock_key(&latch);
	end_probe(&probe);
	ExecDropSingleTupleTableSlot(row);
	remove_dead(&call, id);

	held = hold_queue(&call, queue);
	message.has_sequence = message.partition_key != nullptr && take_place_of(&call, held, message.partition_key, id);
	write_messages(&call, held, &message, 1);
	record_replay(&call, queue, id, message.id);
	end_call(&call);
	PG_RETURN_DATUM(from_uuid(message.id));
}

} // namespace outbox
