// Expressions in the catalogue: conditions of CHECKs and partial indexes, keys of indexes,
// defaults.
//
// Guarantees: what is written here in SQL is compared by the tree that the server makes of it,
// whatever the settings for printing are. users_code() passes only what comes with the server,
// is written in C, looks nothing up by name and leads to no code of a user: no function in SQL,
// which the server would write out by the caller's search_path, and no domain.
#pragma once

#include "server/pg.h"

namespace outbox {

// With search_path pinned: as CREATE INDEX or CHECK would store it for columns of rel.
Node *stored_form(Relation rel, const char *sql);

// What an expression would run beside the server's own code, as words for a message; nullptr if
// it runs nothing else.
const char *users_code(Node *expression);

// A type that comes with the server, or an enum, or an array of these: its values are compared,
// hashed and printed by the server's own code.
bool is_plain_type(Oid type);

} // namespace outbox
