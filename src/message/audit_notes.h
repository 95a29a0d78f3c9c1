// What a call does to messages, for the audit events of its queues.
//
// Guarantees: a call of an audited queue leaves one audit event for each kind, queue and worker, however many messages
// it concerns, in its own transaction; what was undone alone is not in it. A queue is audited while its audit_events is
// on. Where no queue is, a note costs one look at a variable.
//
// Shape: a call remembers its notes, a nested call hands them to the outer one when it succeeds, and the outer one
// writes them at its end. Whether any queue is audited is remembered by the session: functions that change it
// invalidate the description of outbox.queues.
#pragma once

#include "core/state.h"
#include "rows/call.h"

namespace outbox {

enum class Audited { claimed, renewed, released, repaired, completed, blocked, refused };

struct AuditNote {
	Audited what;
	const text *queue;
	const text *worker; // that the call named
	core::Uuid id;
	int attempt_no;                             // 0 = none
	TimestampTz lease_expires_at = 0;           // 0 = none
	core::Record state = core::Record::nothing; // what the ledger got
};

void note_audited(Call *call, const AuditNote &note);
bool is_audited(Call *call, const text *queue);
// Of a refusal whose message may not be pending: its queue, if that is audited; else nullptr.
const text *audited_queue_of(Call *call, const core::Uuid &id);
const char *name_of_audited(Audited what);

// The setting of a queue changes with this transaction.
void note_auditing_changed(Call *call);

} // namespace outbox
