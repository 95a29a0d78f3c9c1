// Order within a key: queues with ordering = 'fifo'.
//
// Guarantees: of the pending messages of a key at most one, the head, is not held back, and no pending message has a
// lesser number. Only heads stand in the index of due messages, so a claim costs the same however many wait behind
// them. When the head ends, the message behind it becomes the head. No producer waits for a worker, no worker for a
// producer, and no key is left without a head for longer than both take to end.
//
// Shape: a producer cannot know whether an open transaction ends the message before its own, and a worker cannot know
// what an open transaction enqueues. So both write first and look afterwards: the producer inserts its row, then looks
// at the row of the message before; the worker deletes its row, then looks for one behind it. If two meet, at least one
// of them sees the other and leaves a mark in outbox.key_marks. settle_marks() continues the key when both have ended.
// A mark costs a row. It is left only where two transactions meet in a key that is about to be empty.
//
// There are three kinds of marks. drained: all numbers up to its sequence_id have ended, if the message that it names
// has ended. gap: its number ended out of turn, or was replayed, so the last message of the key does not tell whether
// the key is busy. blocked: the dead head of a queue with on_dead_head = 'block', until an operator decides.
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
// Before the row loses its lease without passing its turn: the messages of its key that are leased behind it are
// released without a try, so that no two claims hold messages of one key. If another transaction holds one of them, or
// held it, this is not done.
Changed release_run(Call *call, PendingRow *row, Wait wait);

// Whether its end as a dead letter blocks its key.
bool blocks_key(Call *call, const PendingRow *row, bool died);

// Of a message, in its key.
struct KeyPlace {
	const text *queue;
	const text *partition_key;
	int64 sequence_id;
};

// The pending message behind it. open: it belongs to an open transaction, or there may be one in front of it.
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

// Whether the queue is ordered and the message has a key.
bool has_turn(Call *call, const PendingRow *row);

// ---- settling

// Settles the keys that have marks of the kind drained. True if others cannot be settled yet. all: looks at the other
// marks, too, and removes gaps that their keys have come past.
bool settle_marks(Call *call, const Queue *queue, bool all);
// Settles a few, if there are any: claims and wait_for_work do not wait for the background worker.
void settle_some_marks(Call *call, const Queue *queue);

// ---- operators

// Continues the key behind the dead head that blocks it. False if nothing blocks it.
bool unblock_key(Call *call, const Queue *queue, const text *partition_key, core::Uuid *blocked_by);
// Ends the block for a message that replaces the dead head. False if that does not block its key.
bool take_place_of(Call *call, const Queue *queue, const text *partition_key, const core::Uuid &dead);

} // namespace outbox
