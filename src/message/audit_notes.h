// What a call does to messages, for the audit events of its queues.
//
// Guarantees: a call of an audited queue leaves one audit event for each kind, queue and worker, however many messages
// it concerns, in its own transaction; what was undone alone is not in it. A queue is audited while its audit_events is
// on. Where no queue is, a note costs one look at a variable.
//
// Shape: a call remembers its notes, a nested call hands them to the outer one when it succeeds, and the outer one
// writes them at its end. The session remembers which queues are audited: functions that change it invalidate the
// description of outbox.queues, and begin_call() takes note of that.
#pragma once

#include "core/state.h"
#include "message/audit_event.h"

namespace outbox {

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

// The setting of a queue changes with this transaction.
void note_auditing_changed(Call *call);

} // namespace outbox
