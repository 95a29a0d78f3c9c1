-- From pgmq. docs/migrating.md says what to do before and afterwards.
--
--	psql -v table=pgmq.q_mail -v queue=mail -f examples/migrate/pgmq.sql
--	psql -c 'CALL migration.move()'
--
-- For pgmq 1.5 and later, whose queues have headers. Rights of the role that runs it: owner of a schema `migration`; USAGE on the schema pgmq;
-- SELECT, UPDATE, DELETE and TRIGGER on the table of the queue; outbox_ingest.
--
-- A message is held from when a consumer has read it until its visibility timeout is over: it has a read_ct above 0 and a vt that is to
-- come. One with a vt to come that was never read was sent with a delay.
\set ON_ERROR_STOP on
BEGIN;
\ir common.sql

SELECT migration.expect(count(*) = 4, format('%s is not the table of a queue of pgmq 1.5 or later', :'table'),
	'The variable table is the table of the queue, such as pgmq.q_mail. If pgmq is older, update it first.')
FROM pg_attribute WHERE attrelid = to_regclass(:'table') AND attname IN ('msg_id', 'read_ct', 'vt', 'headers') \gset

INSERT INTO migration.origin VALUES (:'table', 'msg_id', NULL);

CREATE VIEW migration.pending AS
SELECT msg_id AS id,
	msg_id AS place,
	vt <= clock_timestamp() OR read_ct = 0 AS movable,
	:'queue'::text AS queue,
	:'queue'::text AS event_type,				-- pgmq has none. message ->> 'type', say
	coalesce(message, 'null') AS payload,
	NULL::text AS aggregate_type,
	NULL::text AS aggregate_id,
	nullif(headers ->> 'x-pgmq-group', '') AS partition_key,
	:'table' || ' ' || msg_id AS idempotency_key,
	NULL::uuid AS event_id,
	CASE jsonb_typeof(headers) WHEN 'object' THEN headers ELSE '{}' END
		|| CASE WHEN read_ct > 0 THEN jsonb_build_object('attempts_before', read_ct) ELSE '{}' END AS headers,
	0 AS priority,
	vt AS deliver_at,
	NULL::int AS max_attempts					-- pgmq has none: the queue's
FROM :table;
COMMIT;
