-- From pg-boss. docs/migrating.md says what to do before and afterwards.
--
--	psql -v name=mail -v queue=mail -f examples/migrate/pg_boss.sql
--	psql -c 'CALL migration.move()'
--
-- Variables: name, the queue of pg-boss; queue; schema, if pg-boss has another one than pgboss.
--
-- For pg-boss 10, 11 and 12; others are refused. Rights of the role that runs it: owner of a schema `migration`; USAGE on pg-boss' schema;
-- SELECT, UPDATE, DELETE and TRIGGER on all its tables; outbox_ingest.
--
-- A job is held while its state is active, and while it is in a flow: one that waits for others, or for which others wait. Those that are
-- completed, cancelled or failed stay, and so do those whose time to be kept is over.
\set ON_ERROR_STOP on
\if :{?schema}
\else
	\set schema pgboss
\endif
BEGIN;
\ir common.sql

SELECT migration.expect(max(version) BETWEEN 21 AND 46, format('the schema "%s" has the version %s of pg-boss'' schema', :'schema', coalesce(max(version), 0)),
	'This script is for the versions 21 to 46, which pg-boss 10.0 to 12.38 have. If a later one does not change which jobs are held, raise the number in the script.')
FROM :"schema".version \gset
SELECT migration.expect(count(*) = 1, format('pg-boss has no queue "%s"', :'name'), 'The variable name is the name of a queue of pg-boss.')
FROM :"schema".queue WHERE name = :'name' \gset

-- Flows and groups came with pg-boss 12.
SELECT format('%I.job', :'schema')::regclass AS jobs \gset
SELECT CASE WHEN count(*) FILTER (WHERE attname = 'blocked') = 1 THEN ' AND NOT %1$sblocked AND NOT %1$sblocking' ELSE '' END AS no_flow,
	CASE WHEN count(*) FILTER (WHERE attname = 'group_id') = 1 THEN 'group_id' ELSE 'NULL' END AS group_id
FROM pg_attribute WHERE attrelid = :'jobs'::regclass \gset
SELECT format(:'no_flow', '') AS not_in_flow \gset

-- The partition that has the jobs of this queue, and of others perhaps.
INSERT INTO migration.origin
SELECT format('%I.%I', :'schema', coalesce(to_jsonb(q) ->> 'partition_name', to_jsonb(q) ->> 'table_name')), 'id', format('NEW.name = %L', name) || format(:'no_flow', 'NEW.')
FROM :"schema".queue q WHERE name = :'name';

CREATE VIEW migration.pending AS
SELECT id,
	-- A job that is tried again comes first: with the policy key_strict_fifo those of its key wait for it.
	CASE state WHEN 'created' THEN start_after ELSE '-infinity' END AS place,
	state <> 'active' :not_in_flow AS movable,
	:'queue'::text AS queue,
	name AS event_type,
	coalesce(data, 'null') AS payload,
	NULL::text AS aggregate_type,
	NULL::text AS aggregate_id,
	coalesce(nullif(singleton_key, ''), nullif(:group_id, '')) AS partition_key,
	'pg-boss ' || id AS idempotency_key,
	NULL::uuid AS event_id,
	CASE WHEN started_on IS NULL THEN '{}' ELSE jsonb_build_object('attempts_before', retry_count + 1) END AS headers,
	least(greatest(priority, 0), 15) AS priority,
	start_after AS deliver_at,
	greatest(retry_limit - retry_count + (started_on IS NULL)::int, 1) AS max_attempts
FROM :"schema".job
WHERE name = :'name' AND state IN ('created', 'retry', 'active') AND keep_until > clock_timestamp();
COMMIT;
