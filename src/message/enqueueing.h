// Writing messages into the tables.
//
// Guarantee: write_messages() enqueues one message or many, new ones and replays: keys, then numbers,
// then the rows of messages and pending. A failure is an ERROR, and the transaction undoes the rest.
#pragma once

#include "message/message.h"

namespace outbox {

// For a call that will write: its time is that of its records, too, however long it waits.
void begin_enqueueing(Call *call);

// Gives the messages their ids, in their order.
void draw_ids(Message *messages, int count);

// Writes messages that have their ids.
void write_messages(Call *call, const Queue *queue, Message *messages, int count);

// Writes the notice of a dead letter, without its key if that is known. It has no partition_key, passes the validator
// by, and waits for no transaction.
void write_notice(Call *call, const Queue *queue, Message *notice);

} // namespace outbox
