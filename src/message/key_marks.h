// Rows of outbox.key_marks: what is known of a key beyond its pending messages (order.h).
//
// Guarantees: a mark is inserted and deleted, never updated, so a probe cannot miss one. Transactions leave marks
// without waiting for one another.
#pragma once

#include "message/queue.h"
#include "server/digest.h"

namespace outbox {

inline constexpr char drained[] = "drained";
inline constexpr char gap[] = "gap";
inline constexpr char blocked[] = "blocked";

struct Mark {
	ItemPointerData tid;
	Digest digest;
	const char *kind; // one of these
	text *partition_key;
	int64 sequence_id;
	bool has_id;
	core::Uuid id;
	bool open; // another transaction is removing it
};

Digest digest_of_key(const text *queue, const text *partition_key);
bool is(const Mark *mark, const char *kind);

void leave_mark(Call *call, const Queue *queue, const text *partition_key, const char *kind, int64 sequence_id,
				const core::Uuid &id);
// In the order of keys, those of drained keys or all. open: there are more, of open transactions.
List *marks_of_queue(Call *call, const text *queue, bool all, bool *open);
// A few of drained keys, for a claim: it does not walk over all that a held snapshot keeps.
List *some_drained_marks(Call *call, const text *queue);
List *marks_of_key(Call *call, const text *queue, const Digest &key, bool *open);
// Those that say nothing any more. A gap does until the key has come past it.
void remove_marks(Call *call, const List *marks, bool all_gaps, int64 head);
// Of a queue that holds no pending message.
void forget_marks(Call *call, const text *queue);

} // namespace outbox
