// table_problems, for outbox.check(): what keeps the functions from using a table.

#include "server/args.h"
#include "server/boundary.h"
#include "rows/layout.h"

using namespace outbox;

namespace {

const Shape &
shape_named(const char *name)
{
	for (const Shape *shape : all_shapes)
		if (strcmp(shape->name, name) == 0)
			return *shape;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown table \"%s\"", name)));
}

} // namespace

OUTBOX_FUNCTION(outbox_table_problems)
{
	const Shape &shape = shape_named(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	Relation rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	Layout layout;
	ListCell *cell;

	begin_results(fcinfo);
	foreach (cell, survey(shape, rel, &layout))
	{
		const Problem *problem = static_cast<const Problem *>(lfirst(cell));
		Datum values[] = {CStringGetTextDatum(unpack_sql_state(problem->sqlstate)), CStringGetTextDatum(problem->what)};
		bool nulls[] = {problem->sqlstate == 0, false};

		put_result(fcinfo, values, nulls);
	}
	table_close(rel, NoLock);
	return static_cast<Datum>(0);
}
