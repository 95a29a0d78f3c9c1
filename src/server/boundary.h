// Where C++ meets PostgreSQL: the only file with try, catch, throw or PG_TRY.
//
// Guarantees:
//  - No C++ exception leaves an extern "C" function (it would end the server):
//    OUTBOX_FUNCTION turns one into an ordinary ERROR.
//  - An ERROR of the server is a longjmp that skips destructors. It may pass through
//    our frames, with its SQLSTATE, because nothing in them owns anything by a
//    destructor: memory is palloc'ed, and locks, pins and relations belong to the
//    transaction.
//  - in_subtransaction() confines an ERROR to its body: the changes of the body are
//    undone, and the caller continues.
#pragma once

#include <exception>

#include "server/pg.h"

namespace outbox {

template <typename Body>
auto
guarded_entry(const Body &body)
{
	char what[256];

	try
	{
		return body();
	}
	catch (const std::exception &e)
	{
		strlcpy(what, e.what(), sizeof(what));
	}
	catch (...)
	{
		strlcpy(what, "unknown exception", sizeof(what));
	}
	ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("outbox: %s", what)));
}

// Runs body(), and returns nullptr or its error: what it began is left to the caller, or to the end of the process.
template <typename Body>
ErrorData *
caught(const Body &body)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData *volatile error = nullptr;

	PG_TRY ()
		;
	{
		body();
	}
	PG_CATCH ()
		;
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	return error;
}

// Which errors are confined. In a call of a client, a serialization failure concerns the
// transaction, and a cancel, a full disk or lack of memory the whole call. A background process has
// no client: no error of one row, of any kind, may keep it from the others.
enum class Confine { row_errors, all_errors };

inline bool
concerns_whole_call(const ErrorData *error)
{
	int category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_TRANSACTION_ROLLBACK || category == ERRCODE_INSUFFICIENT_RESOURCES ||
		   category == ERRCODE_OPERATOR_INTERVENTION;
}

// The server canceled what this process does; not an error that code of a user has made up.
inline bool
is_cancel(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->funcname != nullptr &&
		   strcmp(error->funcname, "ProcessInterrupts") == 0;
}

// Runs body() in a subtransaction. Returns nullptr on success, else the error. body() must open and
// close its own relations, slots and scans: the rollback closes what it leaves open.
template <typename Body>
ErrorData *
in_subtransaction(const Body &body, Confine confine = Confine::row_errors)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = nullptr;

	BeginInternalSubTransaction(nullptr);
	MemoryContextSwitchTo(context);
	PG_TRY ()
		;
	{
		body();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH ()
		;
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error != nullptr && confine == Confine::row_errors && concerns_whole_call(error))
		ReThrowError(error);
	return error;
}

// Runs body() in a transaction, for a process that has none. Returns nullptr on
// success, else the error, copied into the caller's context; then nothing of
// the transaction is left.
template <typename Body>
ErrorData *
in_transaction(const Body &body)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData *error = caught([&] {
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		body();
		PopActiveSnapshot();
		CommitTransactionCommand();
	});

	if (error != nullptr)
		AbortCurrentTransaction();
	MemoryContextSwitchTo(context);
	return error;
}

// Runs body(first, count) over n items: all of them in one subtransaction and, if that fails, each
// in a separate one, so that a fault stops only its item. Calls failed(i, error) for each that failed.
template <typename Body, typename Failed>
void
each_confined(int n, const Body &body, const Failed &failed, Confine confine = Confine::row_errors)
{
	if (n == 0)
		return;
	if (in_subtransaction([&] { body(0, n); }, confine) == nullptr)
		return;
	for (int i = 0; i < n; i++)
	{
		ErrorData *error = in_subtransaction([&] { body(i, 1); }, confine);

		if (error != nullptr)
			failed(i, error);
	}
}

} // namespace outbox

// Defines an SQL-callable function: OUTBOX_FUNCTION(outbox_verb) { ... return datum; }
#define OUTBOX_FUNCTION(symbol) \
	static Datum symbol##_body(FunctionCallInfo fcinfo); \
	extern "C" { \
	PG_FUNCTION_INFO_V1(symbol); \
	Datum symbol(PG_FUNCTION_ARGS) \
	{ \
		return outbox::guarded_entry([=] { return symbol##_body(fcinfo); }); \
	} \
	} \
	static Datum symbol##_body([[maybe_unused]] FunctionCallInfo fcinfo)

// Defines the main function of a background process: OUTBOX_PROCESS(outbox_x_main) { ... }
// with its argument in `argument`.
#define OUTBOX_PROCESS(symbol) \
	static void symbol##_body(Datum argument); \
	extern "C" { \
	void symbol(Datum argument); \
	void symbol(Datum argument) \
	{ \
		outbox::guarded_entry([=] { symbol##_body(argument); }); \
	} \
	} \
	static void symbol##_body([[maybe_unused]] Datum argument)
