// The settings of a queue that decide who sees personal data.
//
// Guarantee: only a member of outbox_privacy lets claims reveal, or takes away what a queue protects.
#pragma once

#include "rows/call.h"

namespace outbox {

// The arguments with these numbers. Of protect NULL keeps it, or is none for a new queue; an empty object removes it.
// reveal_on_claim is only checked. 42501 for others.
void put_privacy(FunctionCallInfo fcinfo, int protect, int reveal_on_claim, Call *call, Table *table,
				 TupleTableSlot *row, bool keep_absent);

} // namespace outbox
