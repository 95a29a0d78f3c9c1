// Queues: their settings as every verb reads them, and their administration.
//
// Guarantees: each call reads the settings from the table, in their newest committed state, so
// pause and alter_queue act at once. A producer holds its queue against drop_queue until the end of
// its transaction, by a shared lock that cannot conflict with locks of an application. drop_queue
// never waits for producers.
#pragma once

#include "server/args.h"
#include "server/boundary.h"
#include "server/errors.h"
#include "rows/call.h"

namespace outbox {

// A fair_key has so many bits for the queue, so that its keys lie together, and then for the key. Two queues that share
// theirs make the walks of claims longer (fair.h); two keys that do have one turn and one limit.
constexpr int fair_queue_bits = 20;
constexpr int fair_key_bits = 43;

// Whose messages are seals: only seal() writes into it (write_notice), so that what the relay carries away was sealed.
constexpr char queue_of_seals[] = "outbox_seals";
// 42501 if it is that one.
void refuse_queue_of_seals(const text *name);

struct Queue {
	Queue *next;
	text *name;
	text *validator; // nullptr = none
	text *validator_owner;
	text *handler; // nullptr = none: workers claim
	text *handler_owner;
	int64 handler_timeout_us;
	text *dead_letter_queue;   // nullptr = none
	Jsonb *protect;            // nullptr = none
	bool reveals;              // claims give protected fields in plain text
	int max_attempts;          // 0 = no ceiling
	int max_releases;          // -1 = no ceiling
	int max_in_flight;         // 0 = no limit
	double rate_limit;         // messages a second; 0 = no limit
	int rate_burst;            // 0 = those of one second
	int max_in_flight_per_key; // 0 = no limit
	bool fair;                 // claims go by key: fair_by, or a limit of each key
	int64 fair_base;           // the least fair_key of its messages (key_limit.h)
	int64 priority_aging_us;   // 0 = none
	int64 lease_us;
	int64 backoff_base_us;
	int64 backoff_cap_us;
	double backoff_jitter;
	int64 repair_delay_us;
	bool numbered; // or fifo
	bool fifo;
	bool blocks;          // its keys, by a dead head
	bool paused;          // or held with all others
	bool refuses_encoded; // payload_kind is object
	bool audited;         // audit_events
	TimestampTz created_at;
};

// The lock that producers share (AccessShareLock) and drop_queue takes alone (AccessExclusiveLock). ExclusiveLock,
// which conflicts with itself and with drop_queue alone, keeps claims apart that count. Its class is the table
// outbox.queues itself, so no advisory lock of an application can meet it.
bool try_to_lock_queue(const text *name, LOCKMODE mode);
void unlock_queue(const text *name, LOCKMODE mode);

// P7004 if there is none.
const Queue *queue_named(Call *call, const text *name);
[[noreturn]] void raise_queue_not_found(const text *name);
// nullptr if there is none.
const Queue *find_queue(Call *call, const text *name);
// For producers: holds the queue against drop_queue, then reads it.
const Queue *hold_queue(Call *call, const text *name);
// For notices of dead letters, with a row in hand: nullptr if there is no such queue. Wait::never: 55P03 while
// drop_queue, or a change that requires an empty queue, has it.
const Queue *hold_queue_if_there(Call *call, const text *name, Wait wait);
// Held to the end of the transaction by those that name a dead_letter_queue, so that what others have named is
// committed.
void lock_dead_letter_queues();
// Without a snapshot, in the newest committed state.
List *all_queues(Call *call, Snapshot snapshot = nullptr);
// The queues argument: names, each once. NULL means default_name, if there is one.
List *queue_names_argument(FunctionCallInfo fcinfo, int arg, const char *default_name);
// The queues of these names. P7004 if there is none.
List *queues_named(Call *call, const List *names);
// The same for a worker of a user: 0A000 if one of them has a handler.
List *queues_to_claim(Call *call, const List *names);
void refuse_handled(const Queue *queue);

// The ceiling for a message that may have its own; 0 = none.
inline int
ceiling(const Queue *queue, int own)
{
	return own > 0 ? own : (queue != nullptr ? queue->max_attempts : 0);
}

inline bool
reaches_ceiling(const Queue *queue, int own, int attempts)
{
	int most = ceiling(queue, own);

	return most > 0 && attempts >= most;
}

int64 queue_backoff_us(const Queue *queue, int attempt_no, const core::Uuid *id);

} // namespace outbox
