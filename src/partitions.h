// Dated partitions of messages and attempts.
//
// Guarantees: a pair, one leaf of each, is made in one (sub)transaction, complete with
// indexes, triggers and comments before it is attached; what cannot be made now (a lock
// not to be had, rows of that time in a DEFAULT partition) is reported and left for
// later. Nothing is ever moved.
#pragma once

#include "pg.h"

namespace outbox {

// told(action, object, detail) hears of each pair.
using Told = void (*)(FunctionCallInfo fcinfo, const char *action, const char *object, const char *detail);

void make_partitions_ahead(FunctionCallInfo fcinfo, Told told);

}	// namespace outbox
