// The settings of a queue that decide who sees personal data.
//
// Guarantee: only a member of outbox_privacy lets claims reveal, gives plain text to a validator or a handler, or takes
// away what a queue protects, also by dropping it.
#pragma once

#include "rows/call.h"

namespace outbox {

// argument_of: the number of the argument for a column. Of protect NULL keeps it, or is none for a new queue; an empty
// object removes it. The others are only checked, in a row that has them already. 42501 for who is no member.
void put_privacy(FunctionCallInfo fcinfo, int (*argument_of)(int), Call *call, Table *table, TupleTableSlot *row,
				 bool keep_absent);
void check_privacy_of_dropped(const Call *call, Table *table, TupleTableSlot *row);

} // namespace outbox
