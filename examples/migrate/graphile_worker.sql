-- From graphile-worker. docs/migrating.md says what to do before and afterwards.
--
--	psql -v queue=jobs -f examples/migrate/graphile_worker.sql
--	psql -c 'CALL migration.move()'
--
-- Variables: queue; schema, if graphile-worker has another one than graphile_worker.
--
-- For graphile-worker 0.16, 0.17 and 0.18; others are refused. Rights of the role that runs it: it owns graphile-worker's schema, whose tables
-- have row level security, and a schema `migration`; outbox_ingest.
--
-- A job is held while it is locked (locked_at). What a worker that died has locked graphile-worker frees after 4 hours, or its function
-- force_unlock_workers() at once. Jobs that have used up their attempts stay.
\set ON_ERROR_STOP on
\if :{?schema}
\else
	\set schema graphile_worker
\endif
BEGIN;
\ir common.sql

SELECT migration.expect(max(id) BETWEEN 18 AND 20, format('the schema "%s" has the migration %s of graphile-worker', :'schema', coalesce(max(id), 0)),
	'This script is for the migrations 18 to 20, which graphile-worker 0.16 to 0.18 have. If a later one does not change how jobs are locked, raise the number in the script.')
FROM :"schema".migrations \gset

INSERT INTO migration.origin VALUES (format('%I._private_jobs', :'schema'), 'id', NULL);

CREATE VIEW migration.pending AS
SELECT id,
	run_at AS place,
	locked_at IS NULL AS movable,
	:'queue'::text AS queue,
	(SELECT t.identifier FROM :"schema"._private_tasks t WHERE t.id = j.task_id) AS event_type,
	payload::jsonb AS payload,
	NULL::text AS aggregate_type,
	NULL::text AS aggregate_id,
	(SELECT nullif(q.queue_name, '') FROM :"schema"._private_job_queues q WHERE q.id = j.job_queue_id) AS partition_key,
	'graphile-worker ' || id AS idempotency_key,
	NULL::uuid AS event_id,
	jsonb_strip_nulls(jsonb_build_object('job_key', key, 'attempts_before', nullif(attempts, 0))) AS headers,
	least(greatest(-priority, 0), 15) AS priority,		-- there a lower number comes first
	run_at AS deliver_at,
	greatest(max_attempts - attempts, 1) AS max_attempts
FROM :"schema"._private_jobs j
WHERE attempts < max_attempts OR locked_at IS NOT NULL;
COMMIT;
