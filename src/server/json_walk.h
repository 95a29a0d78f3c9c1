// Rewriting a jsonb value by value.
//
// Guarantees: what is not replaced is copied as it is. A value is shown with its place: the keys and indexes that lead
// to it from the root. Depth is bounded by the server's own limit of the stack.
#pragma once

#include "server/pg.h"

namespace outbox {

// The last step to a value, and by `up` those before it; nullptr above the first.
struct JsonPlace {
	const JsonPlace *up;
	int depth;       // 1 below the root
	const char *key; // nullptr: an element of an array
	int size;
	int64 index;
};

enum class JsonVisit {
	keep,   // with all that is in it
	enter,  // what is in it is visited
	replace // by *instead
};

// visit(place, value, instead). A value that is an object or an array is jbvBinary.
using JsonVisitor = JsonVisit (*)(void *context, const JsonPlace *place, JsonbValue *value, JsonbValue *instead);

// For an object or an array; another value is returned as it is. Only arrays and objects can be entered.
Jsonb *rewritten(Jsonb *json, JsonVisitor visitor, void *context);

// The place in bytes, which differ if the places do: of each step 'k', the size and the key in UTF-8, or 'i' and the
// index.
void put_place(StringInfo bytes, const JsonPlace *place);

// For messages: $.key[3].
const char *shown_place(const JsonPlace *place);

// Whether the bytes occur somewhere in the value; fast, and not only as a key.
bool may_contain(const Jsonb *json, const char *bytes, size_t size);

} // namespace outbox
