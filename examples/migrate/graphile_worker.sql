-- From graphile-worker. docs/migrating.md says what to do before and afterwards.
--
--	psql -v queue=jobs -f examples/migrate/graphile_worker.sql
--	psql -c 'CALL migration.move()'
--
-- For graphile-worker 0.16 and later. Rights of the role that runs it: it owns the schema graphile_worker, whose tables have row level
-- security, and a schema `migration`; outbox_ingest.
--
-- A job is held while it is locked (locked_at). What a worker that died has locked graphile-worker frees after 4 hours, or
-- graphile_worker.force_unlock_workers() at once. Jobs that have used up their attempts stay.
\set ON_ERROR_STOP on

CREATE TABLE migration.origin (old_table regclass, id_column text, condition text);
INSERT INTO migration.origin VALUES ('graphile_worker._private_jobs', 'id', NULL);

CREATE VIEW migration.pending AS
SELECT id,
	run_at AS place,
	locked_at IS NULL AS movable,
	:'queue'::text AS queue,
	(SELECT t.identifier FROM graphile_worker._private_tasks t WHERE t.id = j.task_id) AS event_type,
	payload::jsonb AS payload,
	NULL::text AS aggregate_type,
	NULL::text AS aggregate_id,
	(SELECT nullif(q.queue_name, '') FROM graphile_worker._private_job_queues q WHERE q.id = j.job_queue_id) AS partition_key,
	'graphile-worker ' || id AS idempotency_key,
	NULL::uuid AS event_id,
	jsonb_strip_nulls(jsonb_build_object('job_key', key, 'attempts_before', nullif(attempts, 0))) AS headers,
	least(greatest(-priority, 0), 15) AS priority,		-- there a lower number comes first
	run_at AS deliver_at,
	greatest(max_attempts - attempts, 1) AS max_attempts
FROM graphile_worker._private_jobs j
WHERE attempts < max_attempts OR locked_at IS NOT NULL;

\ir common.sql
