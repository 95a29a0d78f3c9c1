/*
 * run_redirected(sql): runs it in a background worker, and waits until that has ended.
 *
 * The worker sends its output to a queue in shared memory, as those of pg_cron and pg_background do: to the server it
 * looks as if it had a client, but it has no socket.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "libpq/pqmq.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shm_mq.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(run_redirected);
PGDLLEXPORT void redirected_main(Datum);

#define SQL_SIZE 4096
#define QUEUE_SIZE 65536

typedef struct {
	Oid database;
	Oid role;
	dsm_handle segment;
} Start;

void
redirected_main(Datum main_arg)
{
	Start start;
	dsm_segment *segment;
	char *sql;
	shm_mq *queue;

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	BackgroundWorkerUnblockSignals();
	segment = dsm_attach(start.segment);
	sql = dsm_segment_address(segment);
	queue = (shm_mq *) (sql + SQL_SIZE);
	shm_mq_set_sender(queue, MyProc);
	pq_redirect_to_shm_mq(segment, shm_mq_attach(queue, segment, NULL));
	BackgroundWorkerInitializeConnectionByOid(start.database, start.role, 0);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_execute(sql, false, 0);
	PopActiveSnapshot();
	SPI_finish();
	CommitTransactionCommand();
	proc_exit(0);
}

Datum
run_redirected(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
							   .bgw_start_time = BgWorkerStart_ConsistentState,
							   .bgw_restart_time = BGW_NEVER_RESTART,
							   .bgw_notify_pid = MyProcPid};
	dsm_segment *segment = dsm_create(SQL_SIZE + QUEUE_SIZE, 0);
	char *sql = dsm_segment_address(segment);
	Start start = {MyDatabaseId, GetUserId(), dsm_segment_handle(segment)};
	BackgroundWorkerHandle *handle;

	strlcpy(sql, text_to_cstring(PG_GETARG_TEXT_PP(0)), SQL_SIZE);
	shm_mq_set_receiver(shm_mq_create(sql + SQL_SIZE, QUEUE_SIZE), MyProc);
	strlcpy(worker.bgw_library_name, "redirected_worker", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "redirected_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "redirected", sizeof(worker.bgw_name));
	memcpy(worker.bgw_extra, &start, sizeof(start));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		elog(ERROR, "no background worker is free");
	WaitForBackgroundWorkerShutdown(handle);
	PG_RETURN_VOID();
}
