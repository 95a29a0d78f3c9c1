-- From pg-boss. docs/migrating.md says what to do before and afterwards.
--
--	psql -v name=mail -v queue=mail -f examples/migrate/pg_boss.sql
--	psql -c 'CALL migration.move()'
--
-- For pg-boss 10. Rights of the role that runs it: owner of a schema `migration`; USAGE on the schema pgboss; SELECT, UPDATE, DELETE and
-- TRIGGER on all its tables; outbox_ingest.
--
-- A job is held while its state is active. Those that are completed, cancelled or failed stay, and so do those whose time to be kept is over.
\set ON_ERROR_STOP on

CREATE TABLE migration.origin (old_table regclass, id_column text, condition text);
-- The partition that has the jobs of this queue, and of others perhaps.
INSERT INTO migration.origin
SELECT format('pgboss.%I', coalesce(to_jsonb(q) ->> 'partition_name', to_jsonb(q) ->> 'table_name')), 'id', format('NEW.name = %L', name)
FROM pgboss.queue q WHERE name = :'name';

CREATE VIEW migration.pending AS
SELECT id,
	start_after AS place,
	state <> 'active' AS movable,
	:'queue'::text AS queue,
	name AS event_type,
	coalesce(data, 'null') AS payload,
	NULL::text AS aggregate_type,
	NULL::text AS aggregate_id,
	nullif(singleton_key, '') AS partition_key,
	'pg-boss ' || id AS idempotency_key,
	NULL::uuid AS event_id,
	CASE WHEN started_on IS NULL THEN '{}' ELSE jsonb_build_object('attempts_before', retry_count + 1) END AS headers,
	least(greatest(priority, 0), 15) AS priority,
	start_after AS deliver_at,
	greatest(retry_limit - retry_count + (started_on IS NULL)::int, 1) AS max_attempts
FROM pgboss.job
WHERE name = :'name' AND state IN ('created', 'retry', 'active') AND keep_until > clock_timestamp();

\ir common.sql
