// The settings of a queue as create_queue and alter_queue take them.
//
// Guarantee: what is put into the row is a setting that this version supports; anything else is refused, and names the
// argument and its value.
//
// Shape: the arguments of both functions stand in the order of the table's columns.
#pragma once

#include "rows/call.h"

namespace outbox {

// Of the functions that are given, or nullptr.
struct FunctionOwners {
	const text *validator;
	const text *handler;
};
// Call it before begin_call(), as the caller.
FunctionOwners owners_of_functions(FunctionCallInfo fcinfo);

// Puts the given settings into the row. keep_absent: NULL keeps a setting; else, for a new queue, it is an ERROR where
// it does not mean none.
void put_settings(FunctionCallInfo fcinfo, Call *call, const FunctionOwners &owners, Table *table, TupleTableSlot *row,
				  bool keep_absent);

} // namespace outbox
