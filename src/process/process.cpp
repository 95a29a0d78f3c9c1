// See process.h.

#include "process/process.h"

#include "server/boundary.h"
#include "core/backoff.h"
#include "server/settings.h"
#include "rows/call.h"

namespace outbox {

namespace {

// A library serves what was released before it, too: a server gets it first, and then one
// database after the other is updated.
constexpr const char *served_versions[] = {
	"0.2.0",
#ifdef OUTBOX_STOP_POINTS
	"0.2.0next", // what a test makes of it
#endif
};

// Set over whatever a role or a database has: name, value.
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

// The version that is installed here; nullptr for none.
const char *
installed_version()
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	const char *version = nullptr;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("outbox"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, nullptr, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool isnull;
		Datum value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		version = isnull ? "" : TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

bool
is_subscribed()
{
	Relation rel = table_open(SubscriptionRelRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
	Oid schema = get_namespace_oid("outbox", true);
	bool found = false;
	HeapTuple tuple;

	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = get_rel_namespace(reinterpret_cast<Form_pg_subscription_rel>(GETSTRUCT(tuple))->srrelid) == schema;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

// A restore makes tables first, then fills them, then makes their indexes.
bool
lacks_indexes(const Shape &parent)
{
	Relation rel = open_parent(parent.name);
	PartitionDesc leaves = RelationGetPartitionDesc(rel, true);
	bool lacking = leaves->nparts == 0;

	for (int i = 0; !lacking && i < leaves->nparts; i++)
	{
		Relation leaf = try_relation_open(leaves->oids[i], AccessShareLock);

		if (leaf == nullptr)
			continue;
		lacking = leaf->rd_rel->relkind == RELKIND_RELATION &&
				  (list_length(RelationGetIndexList(leaf)) < parent.nindexes || !OidIsValid(primary_key_index(leaf)));
		relation_close(leaf, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
	return lacking;
}

} // namespace

void
register_launcher()
{
	BackgroundWorker process;

	// pg_upgrade wants nobody else in the server.
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
	// Whoever starts it restarts it, with pauses of its own.
	process.bgw_restart_time = BGW_NEVER_RESTART;
	process.bgw_main_arg = ObjectIdGetDatum(database);
	process.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&process, &handle) ? handle : nullptr;
}

void
connect_process(Oid database)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (OidIsValid(database))
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	else
		BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
	use_own_settings();
}

bool
begin_status(ProcessStatus *report)
{
	bool is_free;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	is_free = report->pid == 0;
	if (is_free)
	{
		report->pid = MyProcPid;
		report->activity = Activity::running;
		report->since = GetCurrentTimestamp();
		report->next_wake = 0;
	}
	LWLockRelease(shared->lock);
	return is_free;
}

void
end_status(ProcessStatus *report)
{
	change_status(report, [](ProcessStatus *mine) {
		mine->pid = 0;
		mine->activity = Activity::stopped;
		mine->since = GetCurrentTimestamp();
		mine->next_wake = 0;
	});
}

int
most_failures(const ProcessStatus *report)
{
	int most = 0;

	for (const Trouble &trouble : report->troubles)
		most = Max(most, trouble.failures);
	return most;
}

void
set_activity(ProcessStatus *report, Activity activity)
{
	if (report->activity == activity)
		return;
	change_status(report, [&](ProcessStatus *mine) {
		mine->activity = activity;
		mine->since = GetCurrentTimestamp();
	});
}

void
set_error(ProcessStatus *report, const char *message)
{
	change_status(report, [&](ProcessStatus *mine) {
		strlcpy(mine->error, message, sizeof(mine->error));
		mine->error[pg_mbcliplen(message, static_cast<int>(strlen(message)), error_length - 1)] = '\0';
		mine->error_at = GetCurrentTimestamp();
	});
}

Finding
find_extension()
{
	const char *version = installed_version();

	if (version == nullptr)
		return Finding::absent;
	for (const char *served : served_versions)
		if (strcmp(version, served) == 0)
			return Finding::present;
	return Finding::other_version;
}

bool
is_being_filled()
{
	return is_subscribed() || lacks_indexes(messages_shape) || lacks_indexes(attempts_shape);
}

int64
pause_us(int failures)
{
	return core::backoff_us(100 * 1000, 60 * USECS_PER_SEC, failures);
}

void
wait_for_latch(int64 us)
{
	int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (us >= 0 ? WL_TIMEOUT : 0);

	WaitLatch(MyLatch, events, us >= 0 ? whole_ms(us) : -1L, extension_wait_event());
	ResetLatch(MyLatch);
}

bool
sleep_process(int64 us)
{
	wait_for_latch(us);
	// There is nothing to cancel: an ERROR here would end the process.
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

} // namespace outbox
