// Verifying seals: the chain, the signatures, and the rows against the roots.
//
// Guarantees: each row of each sealed window is read once, whatever the number of seals. Nothing that it finds ends it,
// not even a page that cannot be read: that is a problem of its partition. What it says of is one state of the
// database: partitions are locked against DDL first, and rows that come later belong to no sealed window.
#pragma once

#include "seals/seal.h"

namespace outbox {

// What was found. problem: nullptr = nothing.
using TellSeal = void (*)(void *argument, int64 seal_no, bool ok, const char *problem);

// Tells of each seal of the range at least once. As the owner, in a READ COMMITTED transaction; connects to SPI itself.
void verify(int64 from_no, int64 to_no, TellSeal tell, void *argument);

} // namespace outbox
