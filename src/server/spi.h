// SQL statements, for upkeep: DDL, and queries whose plan does not matter. Hot code has none.
//
// Guarantees: format is that of printf; the caller quotes the names in it. The statements
// run as the current user, between SPI_connect and SPI_finish.
#pragma once

#include "server/pg.h"

namespace outbox {

// Returns the number of rows.
uint64 run(const char *format, ...) pg_attribute_printf(1, 2);
// The first column of the first row as text; nullptr: no row, or NULL.
char *ask(const char *format, ...) pg_attribute_printf(1, 2);

// Creates or replaces the append-only triggers that a leaf keeps when it is detached.
void add_guards(const char *qualified_leaf);

} // namespace outbox
