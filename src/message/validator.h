// queues.validator: a user's function that says whether a message may enter a queue.
//
// Guarantees: it runs as its owner in a security-restricted context, with search_path pinned, before
// anything of the message is written. A text that it returns refuses the message (22023), and so
// does a missing function (42883): no message enters without validation. Producers choose its
// arguments, so only a member of the owner may set it (42501). If the owner changes, it must be set
// again.
#pragma once

#include "message/message.h"

namespace outbox {

// For the role that sets it: the function exists, has the right signature, and belongs to the role.
// Returns the name of its owner, for queues.validator_owner.
const text *check_validator(const text *name);

// Not for replays: they were accepted once.
void validate(const Queue *queue, const Message *messages, int count);

} // namespace outbox
