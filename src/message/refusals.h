// Refused reports as audit events: TERMINAL_BLOCKED and LEASE_LOST_REFUSED.
//
// Guarantees: a refusal of an audited queue leaves one. In a batch it is noted and belongs to its transaction. One that
// raises undoes its transaction, so it goes to the background worker (commit/refused_reports.h), whatever becomes of
// savepoints and of the transaction; without preloading it leaves none. The worker passes by what another installation
// of the extension has left.
#pragma once

#include "commit/shared.h"
#include "message/audit_notes.h"

namespace outbox {

// raises: the caller does, next.
void note_refusal(Call *call, const core::Uuid &id, const text *worker, Audited what, bool raises);

// ---- the worker

void write_refused(Call *call, const RefusedReport &report);
// REFUSALS_LOST: so many found no place. Nothing if it is none.
void write_lost_refusals(Call *call, const LostRefusals &lost);

} // namespace outbox
