// What a session knows of partitions that get no more rows: between which ids theirs lie.
//
// Guarantees: a partition is closed when a newer one has been committed and no transaction, open or prepared, holds
// the lock that writes to it. A transaction that takes that lock later reads the list of partitions again before it
// writes (open_shelves()), so no row comes into it any more, and the least and the greatest id of its index bound all
// that it will ever have. An id outside of these is not in it. What is remembered of a table is forgotten when the
// table changes in the catalogs.
//
// Shape: ids of the outbox begin with the time, so the bounds of one partition meet those of the next, and a new
// event is in none of the closed ones. Ids without a time are within the bounds of each. Then its index is asked, with
// no lock but on the index, and the table is opened only if there is an entry.
#pragma once

#include "server/values.h"

namespace outbox {

// Whether an event may be in the partition with this number, by the bounds alone.
bool may_have(int32 number, const core::Uuid &id);
// The same for any of some events, by the index too.
bool may_have_any(int32 number, const core::Uuid *const *ids, int count);

// For a partition that is open for reading only, and behind a newer one that is committed: looks whether it is
// closed. Waits for no lock.
void look_whether_closed(int32 number, Relation heap, Relation index);

} // namespace outbox
