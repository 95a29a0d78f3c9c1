// See replaying.h.

#include "message/replaying.h"

#include "message/audit_event.h"
#include "message/dead.h"
#include "message/enqueueing.h"
#include "message/lease.h"
#include "message/order.h"
#include "rows/key_lock.h"
#include "server/errors.h"

namespace outbox {

namespace {

[[noreturn]] void
not_a_dead_letter(const core::Uuid &id, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUTBOX_NOT_PENDING), errmsg("NOT_PENDING: message %s is not a dead letter", shown(id)),
			 errdetail("%s", detail), errhint("outbox.explain() says what became of it.")));
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
claim_replay(const Call *call, Table *replays, Probe *probe, const core::Uuid &id, KeyLock *held)
{
	const unsigned char *tail = id.bytes + UUID_LEN - 6; // the random part
	ScanKeyData key;
	bool isnull;

	key_equals(&key, primary_index(replays), 1, F_UUID_EQ, from_uuid(id));
	if (look_up_latched(probe, &key, 1, ForwardScanDirection, held, tail, 6, call->wait))
		not_a_dead_letter(id, psprintf("It was replayed as %s.",
									   shown(to_uuid(replays->get(probe->slot, replays_col::replay_id, &isnull)))));
}

void
record_replay(Call *call, const text *queue, const core::Uuid &id, const core::Uuid &replay_id)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::replayed, queue, nullptr, &id, nullptr, 1};

	put_field(&detail, "replay_id", shown(replay_id));
	event.detail = end_object(&detail);
	record_event(call, event);
}

// Once, or P7005.
void
insert_replay(Call *call, const core::Uuid &id, const core::Uuid &replay_id)
{
	Table *replays = open(call, replays_shape, inserts);
	TupleTableSlot *row = new_row(replays);
	KeyLock held;
	Probe probe;

	begin_probe(&probe, replays, primary_index(replays), 1);
	claim_replay(call, replays, &probe, id, &held);
	set(replays, row, replays_col::outbox_id, from_uuid(id));
	set(replays, row, replays_col::replay_id, from_uuid(replay_id));
	set(replays, row, replays_col::created_at, TimestampTzGetDatum(call->now));
	insert_rows(replays, &row, 1);
	unlock_key(&held);
	end_probe(&probe);
	ExecDropSingleTupleTableSlot(row);
}

// One of many must not leave its payload behind.
void
forget_contents(const Message *message)
{
	if (message->payload != nullptr)
		pfree(message->payload);
	if (message->payload_bytes != nullptr)
		pfree(message->payload_bytes);
	pfree(message->headers);
}

} // namespace

core::Uuid
replay_message(Call *call, const core::Uuid &id, const TimestampTz *due, Replayable which)
{
	const Queue *held;
	Message message;
	text *queue;

	begin_enqueueing(call);
	require_dead_letter(call, id);
	message = read_message(call, id, &queue);
	message.has_deliver_at = due != nullptr;
	message.deliver_at = due != nullptr ? *due : 0;
	check_message(&message);
	draw_ids(&message, 1);
	insert_replay(call, id, message.id);
	if (!remove_dead(call, id) && which == Replayable::open)
		not_a_dead_letter(id, "It was acknowledged.");
	held = hold_queue(call, queue);
	message.has_sequence = message.partition_key != nullptr && take_place_of(call, held, message.partition_key, id);
	write_messages(call, held, &message, 1);
	record_replay(call, queue, id, message.id);
	forget_contents(&message);
	return message.id;
}

} // namespace outbox
