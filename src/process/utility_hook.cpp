// See utility_hook.h.

#include "process/utility_hook.h"

#include "process/process.h"
#include "commit/entries.h"
#include "commit/transaction.h"
#include "rows/shapes.h"

namespace outbox {

namespace {

constexpr int64 polite_us = 1 * USECS_PER_SEC;
constexpr int64 longest_wait_us = 4 * USECS_PER_SEC;
constexpr int64 look_again_us = 5 * 1000;

ProcessUtility_hook_type previous_utility;

bool
is_gone(int pid)
{
	return pid == 0 || BackendPidGetProc(pid) == nullptr;
}

void
terminate(int pid)
{
	// It belongs to us, unless it has just ended and its number was reused.
	if (pid != 0 && BackendPidGetProc(pid) != nullptr)
		kill(pid, SIGTERM);
}

// Asks the processes of a database to leave and waits for them. If they stay, the command reports that
// sessions use the database.
void
clear_out(DatabaseSlot *slot)
{
	int worker = slot->report.pid;
	int maintenance = slot->maintenance.pid;
	int64 began = steady_us();
	bool insisted = false;

	ask_to_leave(slot);
	terminate(maintenance);
	for (HandlerPlace &place : slot->handlers)
		terminate(static_cast<int>(pg_atomic_read_u32(&place.pid)));
	while (!is_gone(worker) || !is_gone(maintenance))
	{
		int64 waited = steady_us() - began;

		if (waited > longest_wait_us)
			return;
		if (waited > polite_us && !insisted)
		{
			insisted = true;
			terminate(worker);
		}
		wait_for_latch(look_again_us);
		CHECK_FOR_INTERRUPTS();
	}
}

// Takes the lock that the command takes next. For a role without the right to run the command it does
// nothing: the command refuses. A session can copy its own database, because it does not block itself;
// the other commands refuse this.
void
vacate(const char *name, LOCKMODE mode)
{
	Oid database = get_database_oid(name, true);
	DatabaseSlot *slot;

	if (!OidIsValid(database) || (database == MyDatabaseId && mode == AccessExclusiveLock) ||
		!owns_database(database, GetUserId()))
		return;
	slot = database_slot(database, false);
	if (slot == nullptr)
		return;
	LockSharedObject(DatabaseRelationId, database, 0, mode);
	clear_out(slot);
}

const DefElem *
option(const List *options, const char *name)
{
	ListCell *cell;

	foreach (cell, options)
		if (strcmp(static_cast<const DefElem *>(lfirst(cell))->defname, name) == 0)
			return static_cast<const DefElem *>(lfirst(cell));
	return nullptr;
}

void
before_copy(const CreatedbStmt *statement)
{
	const DefElem *source = option(statement->options, "template");

	vacate(source != nullptr && source->arg != nullptr ? defGetString(const_cast<DefElem *>(source)) : "template1",
		   ShareLock);
}

// Commands that need exclusive use of a database.
void
make_way(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreatedbStmt:
			before_copy(reinterpret_cast<const CreatedbStmt *>(statement));
			break;
		case T_DropdbStmt:
			vacate(reinterpret_cast<const DropdbStmt *>(statement)->dbname, AccessExclusiveLock);
			break;
		case T_RenameStmt:
			vacate(reinterpret_cast<const RenameStmt *>(statement)->subname, AccessExclusiveLock);
			break;
		case T_AlterDatabaseStmt:
			if (option(reinterpret_cast<const AlterDatabaseStmt *>(statement)->options, "tablespace") != nullptr)
				vacate(reinterpret_cast<const AlterDatabaseStmt *>(statement)->dbname, AccessExclusiveLock);
			break;
		default:
			break;
	}
}

bool
concerns_databases(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_AlterDatabaseStmt:
			return true;
		case T_RenameStmt:
			return reinterpret_cast<const RenameStmt *>(statement)->renameType == OBJECT_DATABASE;
		default:
			return false;
	}
}

// Any extension: another one may bring ours along by CASCADE.
bool
concerns_extensions(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreateExtensionStmt:
		case T_AlterExtensionStmt:
			return true;
		case T_DropStmt:
			return reinterpret_cast<const DropStmt *>(statement)->removeType == OBJECT_EXTENSION;
		default:
			return false;
	}
}

// Whether it names ours, other than to drop it.
bool
names_ours(const Node *statement)
{
	const char *name =
		IsA(statement, CreateExtensionStmt)  ? reinterpret_cast<const CreateExtensionStmt *>(statement)->extname
		: IsA(statement, AlterExtensionStmt) ? reinterpret_cast<const AlterExtensionStmt *>(statement)->extname
											 : "";

	return strcmp(name, "outbox") == 0;
}

Oid
messages_if_there()
{
	Oid schema = get_namespace_oid("outbox", true);

	return OidIsValid(schema) ? get_relname_relid(messages_shape.name, schema) : InvalidOid;
}

void
before_command(const Node *statement, ProcessUtilityContext context)
{
	if (RecoveryInProgress())
		return;
	if (concerns_extensions(statement))
		note_news(true);
	if (!concerns_databases(statement))
		return;
	note_news(false);
	// In a transaction block all of them except renaming are refused.
	if (IsA(statement, RenameStmt) || (context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock()))
		make_way(statement);
}

// Its rows belong to another transaction, whose notes are lost.
bool
ends_prepared(const Node *statement, TransactionStmtKind how)
{
	return IsA(statement, TransactionStmt) && reinterpret_cast<const TransactionStmt *>(statement)->kind == how;
}

void
utility(PlannedStmt *planned, const char *text, bool read_only_tree, ProcessUtilityContext context,
		ParamListInfo params, QueryEnvironment *environment, DestReceiver *receiver, QueryCompletion *completion)
{
	bool commit_prepared = ends_prepared(planned->utilityStmt, TRANS_STMT_COMMIT_PREPARED);
	bool end_prepared = commit_prepared || ends_prepared(planned->utilityStmt, TRANS_STMT_ROLLBACK_PREPARED);
	bool on_extensions = concerns_extensions(planned->utilityStmt);
	Oid messages = on_extensions ? messages_if_there() : InvalidOid;

	before_command(planned->utilityStmt, context);
	(previous_utility != nullptr ? previous_utility : standard_ProcessUtility)(
		planned, text, read_only_tree, context, params, environment, receiver, completion);
	// A restore may follow. One into tables that were there names ours as well.
	if (on_extensions && (names_ours(planned->utilityStmt) || messages_if_there() != messages))
		note_made_anew();
	if (commit_prepared)
		lower_all_floors();
	if (end_prepared)
	{
		forget_kept();
		have_all_looked_at();
	}
}

} // namespace

void
follow_commands()
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility;
}

} // namespace outbox
