// Personal data in messages on their way into the tables.
//
// Guarantees: in a queue that protects, no field that its rule means is stored in plain text, whatever the producer
// sends: what cannot be protected is refused with 22023. So is a replay of a message from before the rule: it is
// protected, and what was protected then stays as it is. Each message that has protected fields is remembered under
// their keys, also those that its producer has protected. Two batches take their subjects in one order.
//
// Shape: messages are protected when it is known that they are new, after the validator has seen them: a repeated
// message makes no key. Elsewhere a payload is searched for the bytes of a ciphertext's name, and nothing more.
#pragma once

#include "message/message.h"

namespace outbox {

void protect_messages(Call *call, const Queue *queue, Message *const *messages, int count);

} // namespace outbox
