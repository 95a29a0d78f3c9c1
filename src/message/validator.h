// queues.validator: a user's function that says whether a message may enter a queue.
//
// Guarantees: it runs as its own owner in a security-restricted context, with search_path
// pinned, before anything of the message is written; what it returns refuses the message
// (22023), as does a function that is not there (42883): nothing enters unseen.
// Producers choose what the function is given, so only a role that owns it may let them run it
// (42501), and it runs for the owner of that time alone: another owner has to set it again.
#pragma once

#include "message/message.h"

namespace outbox {

// For the role that sets it: the function exists, has the right form, and is the role's own.
// Returns the name of its owner, which goes into queues.validator_owner.
const text *check_validator(const text *name);

// Replays are not asked about again: they were let in once.
void validate(const Queue *queue, const Message *messages, int count);

} // namespace outbox
