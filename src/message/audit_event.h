// Audit events: rows of outbox.events.
//
// Guarantees: append-only, as the ledger. The row belongs to the transaction that does what it tells of. One row tells
// of a whole call and queue, so what it costs does not grow with the messages but by 20 bytes each.
//
// Not to be confused with the event_type of a message, which is the producer's.
#pragma once

#include "rows/call.h"
#include "server/json.h"

namespace outbox {

// What happened. docs/audit.md lists all of it.
enum class Audited {
	claimed,
	renewed,
	released,
	repaired,
	completed,
	blocked,
	refused,
	refusals_lost,
	queue_created,
	queue_altered,
	queue_paused,
	queue_resumed,
	queue_dropped,
	cancelled,
	replayed,
	rescheduled,
	lease_broken,
	dead_acknowledged,
	key_unblocked,
	pending_restored,
	retention_set,
	partition_retired,
	sealed,
	erased,
	key_rotated
};

// False: none has that name.
bool find_audited(const char *name, Audited *what);

struct AuditEvent {
	Audited what;
	const text *queue = nullptr;      // nullptr = it concerns no single queue
	const text *worker_id = nullptr;  // nullptr = none
	const core::Uuid *ids = nullptr;  // of messages
	const int *attempt_nos = nullptr; // of the attempt of each; nullptr = none
	int count = 0;
	TimestampTz lease_expires_at = 0; // 0 = none
	const text *actor = nullptr;      // nullptr = the session user
	Jsonb *session = nullptr;         // of another session; nullptr = of this one
	Jsonb *detail = nullptr;          // an object; application_name and client_addr are put into it
	const int *states = nullptr;      // how many of each core::Record, for the detail; then there is no other
};

// Of what an operator did with one message. attempt_no: 0 = none. reason: in detail; nullptr = none.
void record_for_message(Call *call, Audited what, const text *queue, const core::Uuid &id, int attempt_no,
						const text *reason);

// Returns the id of the row.
core::Uuid record_event(Call *call, const AuditEvent &event);

} // namespace outbox
