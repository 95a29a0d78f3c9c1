// SQL statements, for upkeep: DDL, and queries whose plan does not matter. Hot code has none.
//
// Guarantees: format is that of printf; the caller quotes the names in it. The statements
// run as the current user, between SPI_connect and SPI_finish.
#pragma once

#include "server/pg.h"

namespace outbox {

// Returns the number of rows.
uint64 run(const char *format, ...) pg_attribute_printf(1, 2);
// The same with a time, $1: as text it depends on the time zone of the session, which may not read what it writes.
uint64 run_at(TimestampTz at, const char *format, ...) pg_attribute_printf(2, 3);
// The first column of the first row as text; nullptr: no row, or NULL.
char *ask(const char *format, ...) pg_attribute_printf(1, 2);

// Calls body(tuple, descriptor) for each row of a query with parameters, as the executor comes to it, so that one row
// is in memory at a time, and that is emptied after it. A body that runs SQL connects to SPI itself.
using VisitTuple = void (*)(void *argument, HeapTuple tuple, TupleDesc desc);
void scan_tuples(const char *sql, int count, const Oid *types, const Datum *arguments, VisitTuple visit,
				 void *argument);
template <typename Body>
void
each_tuple(const char *sql, int count, const Oid *types, const Datum *arguments, const Body &body)
{
	scan_tuples(
		sql, count, types, arguments,
		[](void *argument, HeapTuple tuple, TupleDesc desc) { (*static_cast<const Body *>(argument))(tuple, desc); },
		const_cast<Body *>(&body));
}

// Creates or replaces the append-only triggers that a leaf keeps when it is detached.
void add_guards(const char *qualified_leaf);

} // namespace outbox
