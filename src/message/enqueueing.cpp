// See enqueueing.h.

#include "message/enqueueing.h"

#include "server/random.h"
#include "commit/entries.h"
#include "message/grant.h"
#include "message/idempotency.h"
#include "message/key_limit.h"
#include "message/lease.h"
#include "message/order.h"
#include "message/protecting.h"
#include "commit/record_floor.h"
#include "message/sequence.h"
#include "commit/transaction.h"
#include "message/validator.h"

namespace outbox {

namespace {

// Ids are drawn in the order of the messages, below the end of the dated partitions,
// so that a clock that runs ahead fills no DEFAULT partition.
core::IdClock id_clock;

} // namespace

void
begin_enqueueing(Call *call)
{
	call->recorded = record_time(&call->now);
}

void
draw_ids(Message *messages, int count)
{
	int64 end_ms = partitions_end_ms();

	for (int i = 0; i < count; i++)
		messages[i].id = core::next_id(id_clock, GetCurrentTimestamp() + unix_epoch_offset_us, end_ms, random_bits());
}

namespace {

// A message whose partition was retired left its number if a key stands for it.
void
read_retired_number(Call *call, Message *message)
{
	Table *retired = open(call, retired_numbers_shape, reads);
	Probe *probe = probe_id(retired, message->id);
	bool isnull = true;

	if (next_settled(probe, ForwardScanDirection))
		message->sequence_id = DatumGetInt64(retired->get(probe->slot, retired_numbers_col::sequence_id, &isnull));
	message->has_sequence = !isnull;
	rest_probe(probe);
}

// The answer for a duplicate: the number of the first message.
void
read_number(Call *call, Message *message)
{
	Table *leaf = leaf_of(call, messages_shape, message->id, reads);
	Probe *probe = probe_id(leaf, message->id);
	bool isnull = true;
	bool found = next_row(probe);

	if (found)
		message->sequence_id = DatumGetInt64(leaf->get(probe->slot, messages_col::sequence_id, &isnull));
	message->has_sequence = !isnull;
	rest_probe(probe);
	if (!found)
		read_retired_number(call, message);
}

// Which of the messages are new, and which message the others repeat. repeats[i] is the
// element of this batch, or -1.
void
resolve_keys(Call *call, const Queue *queue, Message *messages, int *repeats, int count)
{
	Keyed *keyed = static_cast<Keyed *>(palloc0(sizeof(Keyed) * static_cast<Size>(count)));

	for (int i = 0; i < count; i++)
	{
		keyed[i].aggregate_id = messages[i].aggregate_id;
		keyed[i].idempotency_key = messages[i].idempotency_key;
		keyed[i].has_event_id = messages[i].has_event_id && !messages[i].is_replay;
		keyed[i].event_id = messages[i].event_id;
		keyed[i].id = messages[i].id;
	}
	remember_keys(call, queue->name, keyed, count);
	for (int i = 0; i < count; i++)
	{
		messages[i].created = !keyed[i].known && keyed[i].duplicate_of < 0;
		messages[i].id = keyed[i].id;
		repeats[i] = keyed[i].duplicate_of;
	}
	pfree(keyed);
}

// Those that have a key and no number yet, and the numbers they get.
struct Numbers {
	Numbered *items;
	Message **messages;
	int count;
};

Numbers
number_messages(Call *call, const Queue *queue, Message **created, int count)
{
	Numbers numbers = {static_cast<Numbered *>(palloc0(sizeof(Numbered) * static_cast<Size>(count))),
					   static_cast<Message **>(palloc(sizeof(Message *) * static_cast<Size>(count))), 0};

	for (int i = 0; i < count; i++)
		if (created[i]->partition_key != nullptr && !created[i]->has_sequence)
		{
			Numbered *item = &numbers.items[numbers.count];

			item->partition_key = created[i]->partition_key;
			item->id = created[i]->id;
			item->is_message = true;
			numbers.messages[numbers.count++] = created[i];
		}
	if (numbers.count > 0)
		take_numbers(call, queue->name, numbers.items, numbers.count);
	for (int i = 0; i < numbers.count; i++)
	{
		Numbered *item = &numbers.items[i];

		numbers.messages[i]->has_sequence = true;
		numbers.messages[i]->sequence_id = item->sequence_id;
		numbers.messages[i]->held_back = queue->fifo && (!item->first || waits_for_turn(call, queue, item));
	}
	return numbers;
}

// When messages are written. A record may be later than the clock says, but nothing is due later for that.
struct Moment {
	TimestampTz recorded;
	TimestampTz now;
};

Moment
moment_of(const Call *call)
{
	Moment moment = {call->recorded, call->now};

	if (call->recorded == 0)
		moment.recorded = record_time(&moment.now);
	return moment;
}

void
fill_message(const Queue *queue, Table *leaf, TupleTableSlot *row, const Message *message, const Moment &moment)
{
	using namespace messages_col;

	set(leaf, row, outbox_id, from_uuid(message->id));
	set_text(leaf, row, messages_col::queue, queue->name);
	set(leaf, row, event_id, from_uuid(message->has_event_id ? message->event_id : message->id));
	set_text(leaf, row, event_type, message->event_type);
	set_text(leaf, row, aggregate_type, message->aggregate_type);
	set_text(leaf, row, aggregate_id, message->aggregate_id);
	set_text(leaf, row, partition_key, message->partition_key);
	if (message->has_sequence)
		set(leaf, row, sequence_id, Int64GetDatum(message->sequence_id));
	set_text(leaf, row, idempotency_key, message->idempotency_key);
	set_text(leaf, row, routing_key, message->routing_key);
	set(leaf, row, priority, Int16GetDatum(static_cast<int16>(message->priority)));
	if (message->max_attempts > 0)
		set(leaf, row, max_attempts, Int32GetDatum(message->max_attempts));
	if (message->payload != nullptr)
		set(leaf, row, payload, JsonbPGetDatum(message->payload));
	else
		set(leaf, row, payload_bytes, PointerGetDatum(message->payload_bytes));
	set_text(leaf, row, content_type, message->content_type);
	set(leaf, row, headers, JsonbPGetDatum(message->headers));
	if (message->is_replay)
		set(leaf, row, replay_of, from_uuid(message->replay_of));
	set(leaf, row, created_at, TimestampTzGetDatum(moment.recorded));
}

void
fill_pending(const Queue *queue, Table *table, TupleTableSlot *row, const Message *message, const Moment &moment)
{
	using namespace pending_col;

	set(table, row, outbox_id, from_uuid(message->id));
	set_text(table, row, pending_col::queue, queue->name);
	set(table, row, priority, Int16GetDatum(static_cast<int16>(message->priority)));
	set_text(table, row, partition_key, message->partition_key);
	if (message->has_sequence)
		set(table, row, sequence_id, Int64GetDatum(message->sequence_id));
	set(table, row, attempt_count, Int32GetDatum(0));
	if (message->max_attempts > 0)
		set(table, row, max_attempts, Int32GetDatum(message->max_attempts));
	set(table, row, next_attempt_at, TimestampTzGetDatum(message->due_at));
	set(table, row, created_at, TimestampTzGetDatum(moment.now));
	set(table, row, release_count, Int32GetDatum(0));
	set(table, row, held_back, BoolGetDatum(message->held_back));
	if (queue->fair)
		set(table, row, fair_key, Int64GetDatum(message->fair_key));
	if (message->leased_to == nullptr)
		return;
	set_text(table, row, claimed_by, message->leased_to);
	set(table, row, claimed_at, TimestampTzGetDatum(moment.now));
	set(table, row, lease_token, from_uuid(message->lease_token));
	set(table, row, lease_expires_at, TimestampTzGetDatum(message->lease_expires_at));
}

// Until the lease is written.
struct Limits {
	Grant grant;
	KeyLimit key;
};

bool
may_be_leased(Call *call, const Queue *queue, const Message *message, Limits *limits)
{
	if (queue->paused || message->held_back)
		return false;
	limits->grant = begin_grant(call, queue, 1);
	return limits->grant.count > 0 && take_place_in_key(&limits->key, message->fair_key);
}

// A message that could not be claimed now is stored unleased: a worker will send it.
void
give_lease(Call *call, const Queue *queue, Message *message, TimestampTz now, Limits *limits)
{
	if (message->leased_to != nullptr && !may_be_leased(call, queue, message, limits))
		message->leased_to = nullptr;
	expect(core::State::absent, message->leased_to != nullptr ? core::Event::enqueue_and_claim : core::Event::enqueue,
		   false);
	if (message->leased_to == nullptr)
		return;
	message->lease_token = random_token();
	message->lease_expires_at = later_or_last(now, message->lease_us > 0 ? message->lease_us : queue->lease_us);
}

// The commit announces it to listeners and the background worker.
void
note_written(const Queue *queue, const Message *message, TimestampTz now)
{
	bool leased = message->leased_to != nullptr;

	note_made({queue->name, message->priority, message->due_at, leased, message->lease_expires_at, message->held_back});
	if (message->held_back)
		return;
	if (!leased)
	{
		note_due(queue->name, message->due_at, now);
		return;
	}
	note_expiry(message->lease_expires_at);
	note_count(queue->name, Counter::optimistic);
}

void
write_created(Call *call, const Queue *queue, Message **created, int count, const Moment &moment)
{
	Numbers numbers = {};
	Limits limits = {{queue, 0, 0}, {}};

	protect_messages(call, queue, created, count);
	begin_key_limit(&limits.key, call, queue);
	if (queue->numbered)
		numbers = number_messages(call, queue, created, count);
	for (int i = 0; i < count; i++)
	{
		// A microsecond apart, the last one now: the order of a batch is the order of claims.
		// A message with a due time before its enqueue does not overtake others.
		created[i]->due_at = moment.now - (count - 1 - i);
		if (created[i]->has_deliver_at)
			created[i]->due_at = Max(created[i]->due_at, created[i]->deliver_at);
		if (queue->fair)
			created[i]->fair_key = fair_key_of(queue, created[i]->partition_key);
		give_lease(call, queue, created[i], moment.now, &limits);
	}
	write_rows(
		created, count, [&](const Message *message) { return leaf_of(call, messages_shape, message->id, inserts); },
		[&](Table *leaf, TupleTableSlot *row, const Message *message) {
			fill_message(queue, leaf, row, message, moment);
		});
	write_rows(
		created, count, [&](const Message *) { return pending(call); },
		[&](Table *table, TupleTableSlot *row, const Message *message) {
			fill_pending(queue, table, row, message, moment);
		});
	if (queue->fifo)
		look_at_turns_again(call, queue, numbers.items, numbers.count);
	for (int i = 0; i < count; i++)
		note_written(queue, created[i], moment.now);
	// Now that the lease is noted.
	end_key_limit(&limits.key);
	end_grant(call, &limits.grant, created[0]->leased_to != nullptr ? limits.grant.count : 0);
	// The worker may write notices while a restore goes on.
	if (!created[0]->is_notice && is_first_enqueue())
		note_first_enqueue(relation_oid(messages_shape.name));
	note_count(queue->name, Counter::enqueued, count);
}

} // namespace

void
write_messages(Call *call, const Queue *queue, Message *messages, int count)
{
	int *repeats = static_cast<int *>(palloc(sizeof(int) * static_cast<Size>(Max(count, 1))));
	Message **created = static_cast<Message **>(palloc(sizeof(Message *) * static_cast<Size>(Max(count, 1))));
	int n = 0;
	Moment moment;

	if (count == 0)
		return;
	// What is replayed was written by the sealer.
	if (!messages[0].is_replay)
		refuse_queue_of_seals(queue->name);
	for (int i = 0; i < count; i++)
		if (!messages[i].is_replay)
			check_payload_kind(queue, &messages[i]);
	validate(queue, messages, count);
	// Before it may wait for keys.
	moment = moment_of(call);
	resolve_keys(call, queue, messages, repeats, count);
	for (int i = 0; i < count; i++)
		if (messages[i].created)
			created[n++] = &messages[i];
	if (n > 0)
		write_created(call, queue, created, n, moment);
	note_count(queue->name, Counter::duplicates, count - n);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (messages[i].created)
			continue;
		if (repeats[i] < 0)
			read_number(call, &messages[i]);
		else
		{
			messages[i].has_sequence = messages[repeats[i]].has_sequence;
			messages[i].sequence_id = messages[repeats[i]].sequence_id;
		}
	}
	pfree(repeats);
	pfree(created);
}

void
write_notice(Call *call, const Queue *queue, Message *notice)
{
	Keyed keyed = {};

	keyed.idempotency_key = notice->idempotency_key;
	keyed.id = notice->id;
	// A message dies once, so it is a producer who has used the key.
	if (!remember_at_once(call, queue->name, &keyed))
		notice->idempotency_key = nullptr;
	notice->created = true;
	write_created(call, queue, &notice, 1, moment_of(call));
}

} // namespace outbox
