-- From an outbox table of your own. docs/migrating.md says what to do before and afterwards.
--
--	psql -v table=app.outbox_events -v queue=events -f examples/migrate/table.sql
--	psql -c 'CALL migration.move()'
--
-- Rights of the role that runs it: owner of a schema `migration`; SELECT, UPDATE, DELETE and TRIGGER on the old table; outbox_ingest.
--
-- The view says what a row of the old table is in the outbox. It is written for this table; edit it for yours:
--
--	CREATE TABLE app.outbox_events (
--		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
--		aggregate_type text, aggregate_id text,
--		event_type text NOT NULL, payload jsonb NOT NULL, headers jsonb,
--		attempts int NOT NULL DEFAULT 0,
--		available_at timestamptz NOT NULL DEFAULT now(),	-- not before
--		processed_at timestamptz,							-- delivered
--		failed_at timestamptz);								-- given up
\set ON_ERROR_STOP on
BEGIN;
\ir common.sql

INSERT INTO migration.origin VALUES (:'table', 'id', NULL);

CREATE VIEW migration.pending AS
SELECT id,
	id AS place,
	-- Workers that lock the rows they deliver, until they have set processed_at, need nothing here. If they mark rows instead:
	-- locked_until IS NULL OR locked_until < clock_timestamp(), or status <> 'processing'.
	true AS movable,
	:'queue'::text AS queue,
	event_type,
	payload,
	aggregate_type,
	nullif(aggregate_id, '') AS aggregate_id,
	nullif(aggregate_id, '') AS partition_key,
	'outbox_events ' || id AS idempotency_key,
	NULL::uuid AS event_id,						-- id, if that is a uuid on which consumers deduplicate
	coalesce(headers, '{}') AS headers,
	0 AS priority,
	available_at AS deliver_at,
	greatest(10 - attempts, 1) AS max_attempts	-- old workers give up after 10
FROM :table
WHERE processed_at IS NULL AND failed_at IS NULL;
COMMIT;
