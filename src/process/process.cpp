// See process.h.

#include "process/process.h"

#include "server/boundary.h"
#include "server/settings.h"
#include "server/time_limit.h"

namespace outbox {

namespace {

// These override settings of roles and databases: name, value.
constexpr const char *session[][2] = {
	{"role", "none"},
	{"search_path", "pg_catalog, pg_temp"},
	{"statement_timeout", "0"},
	{"transaction_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"lock_timeout", usual_lock_timeout},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"session_replication_role", "origin"},
	{"default_table_access_method", "heap"},
	{"default_tablespace", ""},
	{"synchronous_commit", "off"},
	{"exit_on_error", "off"},
	{"row_security", "on"},
};

void
use_own_settings()
{
	for (const auto &setting : session)
		if (GetConfigOption(setting[0], true, false) != nullptr)
			SetConfigOption(setting[0], setting[1], PGC_SUSET, PGC_S_OVERRIDE);
}

void
describe(BackgroundWorker *process, const char *kind)
{
	memset(process, 0, sizeof(*process));
	process->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	process->bgw_start_time = BgWorkerStart_RecoveryFinished;
	strlcpy(process->bgw_library_name, "outbox", sizeof(process->bgw_library_name));
	snprintf(process->bgw_function_name, sizeof(process->bgw_function_name), "outbox_%s_main", kind);
	snprintf(process->bgw_type, sizeof(process->bgw_type), "outbox %s", kind);
	strlcpy(process->bgw_name, process->bgw_type, sizeof(process->bgw_name));
}

char database_name[NAMEDATALEN];

constexpr int64 shortage_us = 3 * USECS_PER_SEC;

volatile sig_atomic_t asked_to_end;
volatile sig_atomic_t connecting;

// Outside of a transaction a cancel would end the process with an ERROR.
void
end_soon(SIGNAL_ARGS)
{
	asked_to_end = true;
	stop_limited_code();
	if (connecting || IsTransactionState())
		StatementCancelHandler(postgres_signal_arg);
	else
		SetLatch(MyLatch);
}

} // namespace

void
register_launcher()
{
	BackgroundWorker process;

	// pg_upgrade needs exclusive use of the server.
	if (IsBinaryUpgrade)
		return;
	describe(&process, "launcher");
	process.bgw_restart_time = 1;
	RegisterBackgroundWorker(&process);
}

BackgroundWorkerHandle *
start_process(const char *kind, Oid database)
{
	BackgroundWorkerHandle *handle;
	BackgroundWorker process;

	describe(&process, kind);
	// The process that started it restarts it, after pauses.
	process.bgw_restart_time = BGW_NEVER_RESTART;
	process.bgw_main_arg = ObjectIdGetDatum(database);
	process.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&process, &handle) ? handle : nullptr;
}

void
connect_process(Oid database, pqsigfunc on_sigterm)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGTERM, on_sigterm);
	BackgroundWorkerUnblockSignals();
	if (OidIsValid(database))
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	else
		BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
	// The server ignores the signal until the process has its handlers: a reload that came before then is still to be
	// obeyed.
	ProcessConfigFile(PGC_SIGHUP);
	use_own_settings();
	if (OidIsValid(database))
		in_transaction([] {
			const char *name = get_database_name(MyDatabaseId);

			strlcpy(database_name, name != nullptr ? name : "", sizeof(database_name));
		});
}

void
connect_or_end(Oid database)
{
	ErrorData *error;

	connecting = true;
	error = caught([&] { connect_process(database, end_soon); });
	connecting = false;
	if (asked_to_end)
		proc_exit(0);
	if (error != nullptr)
		ReThrowError(error);
}

bool
is_asked_to_end()
{
	return asked_to_end;
}

void
forget_cancel()
{
	QueryCancelPending = false;
}

void
note_shortage()
{
	pg_atomic_write_u64(&shared->short_at, static_cast<uint64>(steady_us()));
}

bool
is_short()
{
	uint64 at = pg_atomic_read_u64(&shared->short_at);

	return at != 0 && steady_us() < static_cast<int64>(at) + shortage_us;
}

bool
sleep_process(int64 us)
{
	wait_for_latch(us);
	// Nothing is running that could be canceled, and an ERROR here would end the process.
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

const char *
process_name()
{
	const char *type = MyBgworkerEntry->bgw_type;

	return database_name[0] != '\0' ? psprintf("%s of database \"%s\"", type, database_name) : type;
}

} // namespace outbox
