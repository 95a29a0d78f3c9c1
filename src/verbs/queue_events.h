// The audit events of the administration of queues.
#pragma once

#include "message/audit_event.h"

namespace outbox {

// Rows of outbox.queues as they were and are, or nullptr. Of a change only the settings that differ are told.
void record_queue_event(Call *call, Audited what, const text *name, TupleTableSlot *was_row,
						TupleTableSlot *becomes_row);

} // namespace outbox
