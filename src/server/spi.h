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

// Calls body(tuple, descriptor) for each row of a query with parameters, in memory that is emptied after each row. So
// many are fetched at a time.
template <typename Body>
void
each_tuple(const char *sql, int count, Oid *types, Datum *arguments, long at_a_time, const Body &body)
{
	Portal portal = SPI_cursor_open_with_args(nullptr, sql, count, types, arguments, nullptr, false, 0);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "outbox rows", ALLOCSET_DEFAULT_SIZES);

	for (SPI_cursor_fetch(portal, true, at_a_time); SPI_processed > 0; SPI_cursor_fetch(portal, true, at_a_time))
	{
		SPITupleTable *fetched = SPI_tuptable;

		for (uint64 i = 0; i < fetched->numvals; i++)
		{
			MemoryContext previous = MemoryContextSwitchTo(context);

			CHECK_FOR_INTERRUPTS();
			body(fetched->vals[i], fetched->tupdesc);
			MemoryContextSwitchTo(previous);
			MemoryContextReset(context);
		}
		SPI_freetuptable(fetched);
	}
	MemoryContextDelete(context);
	SPI_cursor_close(portal);
}

// Creates or replaces the append-only triggers that a leaf keeps when it is detached.
void add_guards(const char *qualified_leaf);

} // namespace outbox
