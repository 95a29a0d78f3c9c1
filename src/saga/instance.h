// A saga: its row in saga.instances, and what the audit log gets of each change.
//
// Guarantees: every change of a saga locks its row first, raises its version, and writes one row of saga.audit_log
// for each version. A transition that core/saga.h does not list is P7008. In READ COMMITTED a caller waits and sees
// the newest version; above it a version that was committed after its snapshot is 40001.
#pragma once

#include "saga/audit.h"

namespace outbox {

// In the order of their making, as those of messages: rows and index entries of sagas that run together lie together.
core::Uuid new_saga_id();

// id: nullptr is NULL, and no saga. P7007 if there is none.
Instance lock_instance(Call *call, const core::Uuid *id, StoredRow *row);
// Its newest version, without a lock, as a row of the table.
Datum read_instance(Call *call, const core::Uuid &id);
Datum instance_datum(Call *call, const StoredRow *row);

// Writes a new saga, and `created` into the audit log.
void make_instance(Call *call, Instance *instance, Change change);
// Writes a saga that is locked as it shall be; its version and times are filled in. A saga that fails while it runs
// passes through compensating: two versions, and two rows of the audit log.
void put_instance(Call *call, const StoredRow *row, const Instance &was, Instance *becomes, const Change &change);

// P7008. to: as it was asked for, which may be no status.
void check_saga_transition(const core::Uuid &id, core::SagaStatus from, const char *to);
[[noreturn]] void raise_invalid_transition(const char *what, const char *from, const char *to);

// Above READ COMMITTED: the row was committed after the snapshot.
TransactionId inserter_of(TupleTableSlot *slot);
bool is_newer_than_snapshot(TupleTableSlot *slot);
[[noreturn]] void raise_changed_after_snapshot();

} // namespace outbox
