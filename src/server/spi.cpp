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

uint64
run_at(TimestampTz at, const char *format, ...)
{
	Oid type = TIMESTAMPTZOID;
	Datum value = TimestampTzGetDatum(at);
	const char *sql;
	va_list args;

	va_start(args, format);
	sql = formatted(format, &args);
	va_end(args);
	if (SPI_execute_with_args(sql, 1, &type, &value, nullptr, false, 0) < 0)
		elog(ERROR, "could not execute: %s", sql);
	return SPI_processed;
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

// ---- rows

namespace {

struct Visitor {
	DestReceiver receiver; // the first member
	MemoryContext context;
	VisitTuple visit;
	void *argument;
};

bool
receive_tuple(TupleTableSlot *slot, DestReceiver *receiver)
{
	Visitor *visitor = reinterpret_cast<Visitor *>(receiver);
	MemoryContext previous = MemoryContextSwitchTo(visitor->context);
	bool is_copy;

	CHECK_FOR_INTERRUPTS();
	visitor->visit(visitor->argument, ExecFetchSlotHeapTuple(slot, false, &is_copy), slot->tts_tupleDescriptor);
	MemoryContextSwitchTo(previous);
	MemoryContextReset(visitor->context);
	return true;
}

void
do_nothing(DestReceiver *)
{
}

void
begin_receiving(DestReceiver *, int, TupleDesc)
{
}

} // namespace

void
scan_tuples(const char *sql, int count, const Oid *types, const Datum *arguments, VisitTuple visit, void *argument)
{
	Visitor visitor = {{receive_tuple, begin_receiving, do_nothing, do_nothing, DestTuplestore},
					   AllocSetContextCreate(CurrentMemoryContext, "outbox rows", ALLOCSET_DEFAULT_SIZES),
					   visit,
					   argument};
	MemoryContext caller = CurrentMemoryContext;
	SPIExecuteOptions options = {};

	options.params = makeParamList(count);
	for (int i = 0; i < count; i++)
		options.params->params[i] = {arguments[i], false, PARAM_FLAG_CONST, types[i]};
	options.dest = &visitor.receiver;
	if (SPI_execute_extended(sql, &options) != SPI_OK_SELECT)
		elog(ERROR, "could not execute: %s", sql);
	// SPI leaves its own behind.
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(visitor.context);
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
