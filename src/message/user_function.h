// A function of a user that a queue names: its validator, or its handler.
//
// Guarantees: it is looked up by its qualified name, each time, so a dump keeps it. Only a member of its owner can
// set it in a queue. If the owner has changed since then, it is not called: the owner's name is kept beside that of the
// function.
//
// Shape: names are looked up without a check of the caller's rights on the schema. Rights are checked when the
// function is set.
#pragma once

#include "server/pg.h"

namespace outbox {

struct FunctionKind {
	const char *option;    // of the queue
	const char *arguments; // their types
	const char *result;    // its type
	const char *runs;      // who runs it, and why its owner's rights are at stake
	int nargs;
	Oid types[3];
	Oid result_type;
};

struct UserFunction {
	Oid function;
	Oid owner;
};

// 22023 for a name or a function of another form, 42883 if there is none.
UserFunction find_function(const FunctionKind &kind, const text *name);

// For the role that sets it: the function exists, has the right form, and belongs to the role. Returns the name of its
// owner.
const text *check_function(const FunctionKind &kind, const text *name);

// 42501 if it has another owner than when it was set.
void check_same_owner(const FunctionKind &kind, const text *name, Oid owner, const text *owner_then);

} // namespace outbox
