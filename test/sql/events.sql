--
-- Audit events: the table, which nobody changes, and the function through which SQL of the
-- extension writes.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
CREATE VIEW t.events AS
	SELECT event, queue, worker_id, actor = session_user AS mine, array_length(outbox_ids, 1) AS messages, attempt_nos,
		lease_expires_at IS NOT NULL AS leased, detail - 'application_name' - 'client_addr' AS detail
	FROM outbox.events ORDER BY event_id;

-- ---------------------------------------------------------------- the table

SET application_name = 'first';
SELECT outbox.record_event('TRIED') IS NOT NULL AS recorded;
SET application_name = 'second';
SELECT outbox.record_event('TRIED', 'default', ARRAY['00000000-0000-4000-8000-000000000001'::uuid], '{"a": 1, "client_addr": "theirs"}') IS NOT NULL AS recorded;
SELECT event, queue, worker_id, actor = session_user AS mine, outbox_ids, attempt_nos, lease_expires_at, detail FROM outbox.events ORDER BY event_id;
SELECT at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS now, tableoid <> 'outbox.events_default'::regclass AS dated,
	left(event_id::text, 8) || substr(event_id::text, 10, 4) = lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS by_time
FROM outbox.events;
-- It belongs to the transaction.
BEGIN;
SELECT outbox.record_event('UNDONE') IS NOT NULL AS recorded;
ROLLBACK;
SELECT count(*) FROM outbox.events WHERE event = 'UNDONE';
-- Bad arguments write nothing.
SELECT t.try(s) FROM unnest(ARRAY['SELECT outbox.record_event(NULL)', $$SELECT outbox.record_event('')$$, $$SELECT outbox.record_event('X', detail => NULL)$$,
	$$SELECT outbox.record_event('X', detail => '[]')$$, $$SELECT outbox.record_event('X', outbox_ids => '{NULL}')$$,
	$$SELECT outbox.record_event('X', outbox_ids => '{{00000000-0000-4000-8000-000000000001}}')$$]) s;
SELECT count(*) FROM outbox.events;
-- None changes it, and none but the owner writes it.
SELECT tableoid::regclass AS leaf FROM outbox.events LIMIT 1 \gset
INSERT INTO outbox.events_default (event_id, event, at, actor, detail) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 'PLAIN', now(), 'a', '{}');
SELECT t.masked(place) AS place, t.try(format(s, place)) FROM unnest(ARRAY['outbox.events', 'outbox.events_default', :'leaf']) WITH ORDINALITY p(place, n),
	unnest(ARRAY['UPDATE %s SET detail = detail', 'DELETE FROM %s', 'TRUNCATE %s']) s ORDER BY n, s;
SET session_replication_role = replica;
SELECT t.try(format(s, 'outbox.events')) FROM unnest(ARRAY['UPDATE %s SET detail = detail', 'DELETE FROM %s', 'TRUNCATE %s']) s ORDER BY s;
RESET session_replication_role;
SELECT t.try($$INSERT INTO outbox.events_default (event_id, event, at, actor, detail) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 'PLAIN', now(), 'a', '{}')$$);
SET ROLE outbox_auditor;
SELECT count(*) > 0 AS read FROM outbox.events;
SELECT outbox.record_event('X');
INSERT INTO outbox.events (event) VALUES ('X');
RESET ROLE;
