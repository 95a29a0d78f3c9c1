// Expressions in the catalogs: conditions of CHECKs and partial indexes, keys of indexes, defaults.
//
// Guarantees: expressions are compared as trees, so settings for printing do not matter.
// users_code() accepts only functions that come with the server, are written in C, look nothing up
// by name and lead to no code of a user. It accepts no function in SQL, which the server would
// expand by the caller's search_path, and no domain.
#pragma once

#include "server/pg.h"

namespace outbox {

// The tree that CREATE INDEX or CHECK would store for columns of rel. search_path is pinned.
Node *stored_form(Relation rel, const char *sql);

// Words for a message: what the expression runs beside the server's own code; nullptr if nothing.
const char *users_code(Node *expression);

// A type that comes with the server, or an enum, or an array of these: its values are compared,
// hashed and printed by the server's own code.
bool is_plain_type(Oid type);

} // namespace outbox
