// Order within a key: queues with ordering = 'fifo'.
//
// Guarantees: of the pending messages of a key at most one, the head, is not held back, and no pending message has a
// lesser number. Only heads stand in the index of due messages, so a claim costs the same however many wait behind
// them. When the head ends, the message behind it becomes the head. No producer waits for a worker, no worker for a
// producer, and no key is left without a head for longer than both take to end.
//
// Shape: a producer cannot know whether an open transaction ends the message before its own, and a worker cannot know
// what an open transaction enqueues. So both write first and look afterwards: the producer inserts its row, then looks
// at the row of the message before; the worker deletes its row, then looks for one behind it. Of two that meet, one at
// least sees the other, and leaves a mark in outbox.key_marks. settle_marks() lets the key go on when both have ended.
// A mark costs a row, and is left only where two transactions meet in a key that is about to be empty.
//
// A mark is a drained key: all numbers up to its sequence_id have ended, if the message that it names has. Or a gap:
// that number was ended out of turn, or replayed, so that the last message of the key does not tell whether the key is
// busy. Or a block: the dead head of a queue with on_dead_head = 'block', until an operator decides.
#pragma once

#include "message/pending_row.h"
#include "message/queue.h"
#include "message/sequence.h"

namespace outbox {

// ---- producers: a key's number was taken, and with it the right to enqueue into the key

// Whether a message is held back. first: of its key in this call; those after it are.
bool waits_for_turn(Call *call, const Queue *queue, Numbered *first);
// Once their rows are written.
void look_at_turns_again(Call *call, const Queue *queue, const Numbered *items, int count);

// ---- ending a message

// The row of a message that ended is gone. died: as a dead letter, and not by an operator.
void pass_turn(Call *call, const PendingRow *row, bool died);
// Before the row loses its lease without letting the key go on: those that are leased behind it are given back untried,
// so that of a key no two claims hold messages. Not done: another transaction holds one of them, or did.
Changed release_run(Call *call, const PendingRow *row, Wait wait);

// Whether its end as a dead letter blocks its key.
bool blocks_key(Call *call, const PendingRow *row, bool died);

// Of a message, in its key.
struct KeyPlace {
	const text *queue;
	const text *partition_key;
	int64 sequence_id;
};

// The pending message behind it. open: it is of a transaction that is open, or there may be one in front of it.
struct Successor {
	bool open;
	TransactionId holder; // that transaction, if known
	PendingRow *row;      // nullptr = none
};
Successor successor(Call *call, const KeyPlace &place);

// Whether that many attempts end it. A message that is held back ends when its key has come to it.
inline bool
ends_at_ceiling(const Queue *queue, const PendingRow *row, int attempts)
{
	return !row->held_back && reaches_ceiling(queue, row->max_attempts, attempts);
}

// Of a queue that is ordered: it has a key, and so a turn.
bool has_turn(Call *call, const PendingRow *row);

// ---- settling

// All of them; true: there are more, which cannot be settled yet.
bool settle_marks(Call *call, const Queue *queue);
// A few, if it may have any: claims do not wait for the background worker.
void settle_some_marks(Call *call, const Queue *queue);
bool has_marks_to_settle(Call *call, const Queue *queue);

// ---- operators

// The key goes on behind the dead head that blocks it; false: nothing does.
bool unblock_key(Call *call, const Queue *queue, const text *partition_key, core::Uuid *blocked_by);
// Ends the block for a message that takes the place of the dead head; false: that does not block its key.
bool take_place_of(Call *call, const Queue *queue, const text *partition_key, const core::Uuid &dead);
// Of a queue that holds no pending message.
void forget_marks(Call *call, const text *queue);

} // namespace outbox
