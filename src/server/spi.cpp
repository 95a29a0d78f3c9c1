// See spi.h.

#include "server/spi.h"

namespace outbox {

namespace {

const char *formatted(const char *format, va_list *args) pg_attribute_printf(1, 0);

const char *
formatted(const char *format, va_list *args)
{
	StringInfoData sql;

	initStringInfo(&sql);
	for (;;)
	{
		va_list copy;
		int needed;

		va_copy(copy, *args);
		needed = appendStringInfoVA(&sql, format, copy);
		va_end(copy);
		if (needed == 0)
			return sql.data;
		enlargeStringInfo(&sql, needed);
	}
}

uint64
execute(const char *sql)
{
	if (SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "could not execute: %s", sql);
	return SPI_processed;
}

} // namespace

uint64
run(const char *format, ...)
{
	const char *sql;
	va_list args;

	va_start(args, format);
	sql = formatted(format, &args);
	va_end(args);
	return execute(sql);
}

char *
ask(const char *format, ...)
{
	const char *sql;
	va_list args;

	va_start(args, format);
	sql = formatted(format, &args);
	va_end(args);
	return execute(sql) == 0 ? nullptr : SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

void
add_guards(const char *leaf)
{
	run("CREATE OR REPLACE TRIGGER append_only_leaf BEFORE UPDATE OR DELETE ON %s "
		"FOR EACH ROW EXECUTE FUNCTION outbox.append_only()",
		leaf);
	run("ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_leaf", leaf);
	run("COMMENT ON TRIGGER append_only_leaf ON %s IS 'the leaf''s own, kept when it is detached'", leaf);
	run("CREATE OR REPLACE TRIGGER append_only_truncate BEFORE TRUNCATE ON %s "
		"FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()",
		leaf);
	run("ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_truncate", leaf);
	run("COMMENT ON TRIGGER append_only_truncate ON %s IS 'the ledger is never emptied'", leaf);
}

} // namespace outbox
