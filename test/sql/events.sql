--
-- Audit events: the table, which nobody changes, and the function through which SQL of the
-- extension writes.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
-- ---------------------------------------------------------------- the table

SET application_name = 'first';
SELECT outbox.record_event('KEY_ROTATED') IS NOT NULL AS recorded;
SET application_name = 'second';
SELECT outbox.record_event('KEY_ROTATED', 'default', ARRAY['00000000-0000-4000-8000-000000000001'::uuid], '{"a": 1, "client_addr": "theirs"}') IS NOT NULL AS recorded;
SELECT event, queue, worker_id, actor = session_user AS mine, outbox_ids, attempt_nos, lease_expires_at, detail FROM outbox.events ORDER BY event_id;
SELECT at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS now, tableoid <> 'outbox.events_default'::regclass AS dated,
	left(event_id::text, 8) || substr(event_id::text, 10, 4) = lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS by_time
FROM outbox.events;
-- It belongs to the transaction.
BEGIN;
SELECT outbox.record_event('ERASED') IS NOT NULL AS recorded;
ROLLBACK;
SELECT count(*) FROM outbox.events WHERE event = 'ERASED';
-- Bad arguments write nothing.
SELECT t.try(s) FROM unnest(ARRAY['SELECT outbox.record_event(NULL)', $$SELECT outbox.record_event('')$$, $$SELECT outbox.record_event('ERASED', detail => NULL)$$,
	$$SELECT outbox.record_event('ERASED', detail => '[]')$$, $$SELECT outbox.record_event('ERASED', outbox_ids => '{NULL}')$$,
	$$SELECT outbox.record_event('ERASED', outbox_ids => '{{00000000-0000-4000-8000-000000000001}}')$$]) s;
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

-- ---------------------------------------------------------------- what is always written

\i :fresh
CREATE VIEW t.events AS
	SELECT event, queue, worker_id AS worker, (SELECT array_agg(m.event_type ORDER BY n) FROM unnest(outbox_ids) WITH ORDINALITY u(id, n) LEFT JOIN outbox.messages m ON m.outbox_id = id) AS messages,
		attempt_nos AS attempts, lease_expires_at IS NOT NULL AS leases, detail - 'application_name' - 'client_addr' AS detail
	FROM outbox.events ORDER BY event_id;
-- What the last statements left.
CREATE TABLE t.shown (event_id uuid);
CREATE FUNCTION t.new_events() RETURNS SETOF t.events LANGUAGE sql AS $$
	WITH new AS (INSERT INTO t.shown SELECT event_id FROM outbox.events EXCEPT SELECT event_id FROM t.shown RETURNING event_id)
	SELECT v.event, v.queue, v.worker, v.messages, v.attempts, v.leases, v.detail
	FROM (SELECT row_number() OVER (ORDER BY event_id) AS n, event_id FROM outbox.events) e
	JOIN (SELECT row_number() OVER () AS n, * FROM t.events) v USING (n) JOIN new ON new.event_id = e.event_id ORDER BY n
$$;
SELECT outbox.create_queue('q', max_attempts => 3);
SELECT event, queue, detail -> 'new' -> 'max_attempts' AS ceiling, detail -> 'new' -> 'queue' AS name, detail ? 'old' AS old FROM t.new_events();
SELECT outbox.alter_queue('q', max_attempts => NULL, lease => '1 min');
SELECT outbox.pause('q');
SELECT outbox.resume('q');
SELECT outbox.alter_queue('q');
SELECT * FROM t.new_events();
SELECT outbox.set_retention('90 days');
SELECT outbox.set_retention(NULL, archive_schema => 'attic');
SELECT * FROM t.new_events();
SELECT count(*) FROM outbox.enqueue_batch('q', '[{"event_type": "a", "payload": 1}, {"event_type": "b", "payload": 1}, {"event_type": "c", "payload": 1}]');
SELECT outbox.cancel(t.id('a'), 'not wanted');
SELECT outbox.acknowledge_dead(t.id('a'), 'known');
SELECT outbox.acknowledge_dead(t.id('a'), 'again');
SELECT count(outbox.replay(t.id('a')));
SELECT outbox.reschedule(t.id('b'), '2020-01-01', 4) IS NOT NULL AS rescheduled;
SELECT count(*) FROM outbox.claim('w', 1, queues => '{q}');
SELECT outbox.break_lease(t.id('b'), 'hangs');
SELECT event, queue, messages, attempts, detail - 'replay_id' - 'next_attempt_at' AS detail, jsonb_object_keys(detail) FROM t.new_events();
-- A key that a dead head blocks, and a row of pending that is lost.
SELECT outbox.create_queue('f', ordering => 'fifo', on_dead_head => 'block');
SELECT count(*) FROM outbox.enqueue_batch('f', '[{"event_type": "f1", "payload": 1, "partition_key": "k"}, {"event_type": "f2", "payload": 1, "partition_key": "k"}]');
SELECT count(*) FROM outbox.claim('w', 1, queues => '{f}');
SELECT recorded FROM outbox.complete(t.id('f1'), t.token('f1'), 'w', 'FAILED');
SELECT outbox.unblock('f', 'k') = t.id('f1') AS unblocked;
SELECT t.lose($$queue = 'f'$$), outbox.restore_pending();
SELECT event, queue, messages, detail FROM t.new_events() WHERE event <> 'QUEUE_CREATED';
-- What is refused leaves none.
SELECT t.try(s) FROM unnest(ARRAY[$$SELECT outbox.create_queue('q')$$, $$SELECT outbox.alter_queue('nowhere')$$, $$SELECT outbox.drop_queue('q')$$,
	$$SELECT outbox.cancel(t.id('a'), 'again')$$, $$SELECT outbox.set_retention('1 s')$$]) s;
SELECT * FROM t.new_events();
SELECT count(outbox.cancel(outbox_id, 'over')) FROM outbox.pending WHERE queue = 'q';
SELECT outbox.drop_queue('q');
SELECT event, queue, array_length(messages, 1) AS messages, detail ? 'old' AS old FROM t.new_events();

-- ---------------------------------------------------------------- what an audited queue writes: a row for each call

SELECT outbox.create_queue(q, max_attempts => 3, repair_delay => '0', audit_events => q <> 'quiet') FROM unnest(ARRAY['audited', 'also', 'quiet']) q;
SELECT count(*) FROM t.new_events();
SELECT count(*) FROM outbox.enqueue_batch('audited', '[{"event_type": "a1", "payload": 1}, {"event_type": "a2", "payload": 1}, {"event_type": "a3", "payload": 1}, {"event_type": "a4", "payload": 1}]');
SELECT count(*) FROM outbox.enqueue_batch('also', '[{"event_type": "o1", "payload": 1}]');
SELECT count(*) FROM outbox.enqueue_batch('quiet', '[{"event_type": "q1", "payload": 1}]');
SELECT * FROM t.new_events();
SELECT count(*) FROM outbox.claim('w', 10, queues => '{audited, also, quiet}');
SELECT * FROM t.new_events();
SELECT count(*) FROM outbox.claim('w', 10, queues => '{audited, also, quiet}');
SELECT * FROM t.new_events();
SELECT count(*) FROM outbox.renew('w', ARRAY[t.id('a1'), t.id('q1'), t.id('a2')], ARRAY[t.token('a1'), t.token('q1'), t.token('a2')]);
SELECT count(*) FROM outbox.release('w', ARRAY[t.id('a1'), t.id('q1')], ARRAY[t.token('a1'), t.token('q1')]);
SELECT * FROM t.new_events();
SELECT recorded FROM outbox.complete(t.id('a2'), t.token('a2'), 'w', 'DISPATCHED');
SELECT recorded, error FROM outbox.complete_batch('w', ARRAY[t.id('a3'), t.id('a4'), t.id('o1'), t.id('a2')], ARRAY[t.token('a3'), t.token('a4'), t.token('o1'), gen_random_uuid()], '{RETRYABLE, FAILED, DISPATCHED, DISPATCHED}', retry_delays => '{0, NULL, NULL, NULL}');
SELECT * FROM t.new_events();
-- A lost lease, found by repair, and by the claim that takes it over.
SELECT count(*) FROM outbox.claim('w', 10, queues => '{audited}');
SELECT t.expire(e) FROM unnest(ARRAY['a1', 'a3']) e;
SELECT count(*) FROM outbox.repair_expired_leases(1, 'finder');
SELECT count(*) FROM outbox.claim('x', 10, queues => '{audited}');
SELECT * FROM t.new_events();
-- A queue refuses item by item: in its own transaction.
SELECT recorded, error FROM outbox.complete_batch('w', ARRAY[t.id('a1'), t.id('q1')], ARRAY[gen_random_uuid(), gen_random_uuid()], '{DISPATCHED, DISPATCHED}');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (t.id('a1'), 3, 'DISPATCHED', now());
SELECT recorded, error FROM outbox.complete_batch('x', ARRAY[t.id('a1')], ARRAY[t.token('a1')], '{DISPATCHED}');
SELECT * FROM t.new_events();
-- Optimistic sending, and both halves of complete_and_claim.
SELECT created FROM outbox.enqueue_and_claim('sender', 's', '1', 'audited');
SELECT count(*) FROM outbox.complete_and_claim('sender', ARRAY[t.id('s')], ARRAY[t.token('s')], '{DISPATCHED}', queues => '{quiet}');
SELECT * FROM t.new_events();
-- Undone with the transaction, and alone where a row fails alone.
BEGIN;
SELECT count(*) FROM outbox.enqueue_batch('also', '[{"event_type": "u1", "payload": 1}, {"event_type": "u2", "payload": 1}]');
SAVEPOINT s;
SELECT count(*) FROM outbox.claim('w', 1, queues => '{also}');
ROLLBACK TO s;
SELECT count(*) FROM outbox.claim('w', 1, queues => '{also}');
COMMIT;
SELECT * FROM t.new_events();
ALTER TABLE outbox.pending ADD CONSTRAINT mine CHECK (claimed_by <> 'bad' OR outbox_id::text !~ '^.{35}[0-7]$') NOT VALID;
SELECT count(*) FROM outbox.enqueue_batch('also', (SELECT jsonb_agg(jsonb_build_object('event_type', 'm' || n, 'payload', 1)) FROM generate_series(1, 40) n));
SET client_min_messages = error;
SELECT count(*) AS claimed FROM outbox.claim('bad', 100, queues => '{also}') \gset
RESET client_min_messages;
ALTER TABLE outbox.pending DROP CONSTRAINT mine;
SELECT count(*) AS events, sum(array_length(outbox_ids, 1)) = :claimed AS all_taken FROM outbox.events WHERE worker_id = 'bad';
-- On and off act at once, in this session and in its transaction.
BEGIN;
SELECT outbox.alter_queue('also', audit_events => false);
SELECT count(*) > 0 AS released FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending WHERE claimed_by = 'bad') p, outbox.release('bad', p.ids, p.tokens);
ROLLBACK;
SELECT count(*) FROM outbox.events WHERE event = 'LEASE_RELEASED' AND queue = 'also';
SELECT count(*) > 0 AS released FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending WHERE claimed_by = 'bad') p, outbox.release('bad', p.ids, p.tokens);
SELECT count(*) FROM outbox.events WHERE event = 'LEASE_RELEASED' AND queue = 'also';
-- 10,000 messages: still one row.
SELECT count(*) FROM outbox.enqueue_batch('audited', (SELECT jsonb_agg(jsonb_build_object('event_type', 'many', 'payload', 1)) FROM generate_series(1, 10000)));
SELECT count(*) FROM outbox.claim('many', 10000, queues => '{audited}');
SELECT array_length(outbox_ids, 1), array_length(attempt_nos, 1) FROM outbox.events WHERE worker_id = 'many';

-- ---------------------------------------------------------------- those of one message

SELECT event, queue, worker_id, attempt_no, lease_expires_at IS NOT NULL AS leases FROM outbox.message_events(t.id('a1'));
SELECT count(*) FROM outbox.message_events(t.id('a1'), clock_timestamp());
SELECT count(*) FROM outbox.message_events(t.id('a1'), (SELECT at FROM outbox.message_events(t.id('a1')) OFFSET 1 LIMIT 1));
SELECT count(*) FROM outbox.message_events(t.id('a1'), clock_timestamp() - interval '2 hours');
SELECT count(*) FROM outbox.message_events(NULL);
SELECT count(*) FROM outbox.message_events('00000000-0000-7000-8000-000000000000');
SELECT count(*) FROM outbox.message_events('ffffffff-ffff-7fff-bfff-ffffffffffff');
-- The clock was set back by almost an hour since it was enqueued.
SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3500000), 12, '0') || '70008000000000000000')::uuid AS ahead \gset
SELECT outbox.record_event('KEY_ROTATED', outbox_ids => ARRAY[:'ahead'::uuid]) IS NOT NULL AS recorded;
SELECT event FROM outbox.message_events(:'ahead');
-- Who reads many of them adds an index, to which the outbox adds its rows as well.
SELECT tableoid::regclass AS leaf FROM outbox.events WHERE worker_id = 'many' \gset
CREATE INDEX mine ON :leaf USING gin (outbox_ids);
SELECT count(*) FROM outbox.claim('indexed', 10, queues => '{quiet,also,audited}');
SET enable_seqscan = off;
SELECT event, worker_id, queue FROM outbox.events WHERE outbox_ids @> (SELECT ARRAY[min(outbox_id::text)::uuid] FROM outbox.pending WHERE claimed_by = 'indexed') AND worker_id = 'indexed';
SELECT event, worker_id, attempt_no FROM outbox.message_events(t.id('a1'));
RESET enable_seqscan;
SELECT * FROM outbox.check() WHERE severity = 'error';
