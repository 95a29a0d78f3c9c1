// queues.handler: a user's function that handles the messages of a queue inside the database.
//
// Guarantees: it runs as its owner, who can do no more than that role may, and it cannot change role. search_path is
// pinned, no timeout of the session applies, and what it sets is undone. If it cannot run, because it is gone, has
// another owner than when it was set, or may not be executed by its owner, it is not called (42883, 42501).
#pragma once

#include "message/queue.h"
#include "message/user_function.h"

namespace outbox {

// As check_validator().
const text *check_handler(const text *name);

// That of the queue, for this moment.
UserFunction find_handler(const Queue *queue);

// outbox.claimed
TupleDesc claimed_desc();

// In whose transaction it runs. One of ours is in a session of ours, whose settings are what a handler is to see. The
// end of a transaction of ours is the handler's, too: deferred triggers and held cursors run as its owner. In another's
// they would run as that one, so there are none.
enum class Transaction { ours, of_another };

// The caller restores user and context after the end of the transaction, or of the subtransaction.
void call_handler(const UserFunction &handler, HeapTuple message, TupleDesc desc, Transaction transaction);

} // namespace outbox
