--
-- restore_pending: messages that lost their row of pending are found, and get it back as it was.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
SELECT outbox.create_queue('n', ordering => 'numbered', max_attempts => 3);
SELECT outbox.create_queue('gone');

-- In dated partitions and in DEFAULT ones; untried, tried, leased, ended in both ways.
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT outbox.enqueue(e, '1', priority => 7, max_attempts => 9) IS NOT NULL AS made FROM unnest('{untried,tried,leased,delivered,dead}'::text[]) e;
SELECT sequence_id FROM unnest('{n1,n2,n3}'::text[]) e, outbox.enqueue(e, '1', 'n', partition_key => 'k');
SELECT created FROM outbox.enqueue('homeless', '1', 'gone');
INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
SELECT id, 'default', id, 'old ' || n, 0, '1', '{}', clock_timestamp()
FROM generate_series(1, 3) n, LATERAL (SELECT ('017f22e2-79b0-7cc3-98c4-dc0c0c07398' || n)::uuid AS id) i;
INSERT INTO outbox.pending (outbox_id, queue) SELECT t.id('old 1'), 'default';
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) SELECT t.id('old 2'), 1, 'FAILED', clock_timestamp();
SELECT count(*) FROM outbox.claim('w', 10);
SELECT recorded FROM outbox.complete(t.id('tried'), t.token('tried'), 'w', 'RETRYABLE', retry_delay => '1 year');
SELECT recorded FROM outbox.complete(t.id('delivered'), t.token('delivered'), 'w', 'DISPATCHED');
SELECT recorded FROM outbox.complete(t.id('dead'), t.token('dead'), 'w', 'FAILED');

-- A sound outbox has lost only what somebody wrote without a row of pending.
CREATE VIEW t.lost AS SELECT queue, event_type, attempts FROM outbox.lost_messages() ORDER BY event_type COLLATE "C";
CREATE VIEW t.deep AS SELECT severity, object, regexp_replace(t.masked(problem), '^.*? (?=messages are)', '') AS problem FROM outbox.check(deep => true) WHERE severity = 'error' ORDER BY 2;
SELECT * FROM t.lost;
SELECT * FROM t.deep;
SELECT count(*) FROM outbox.check() WHERE severity = 'error';

-- What its trigger refuses is noticed when it is disabled, and so is what happened meanwhile.
SELECT t.try('DELETE FROM outbox.pending');
CREATE TABLE t.before AS TABLE outbox.pending;
ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
ALTER TABLE outbox.pending ENABLE REPLICA TRIGGER pending_changed;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
DELETE FROM outbox.pending;
ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
SELECT outbox.drop_queue('gone');
SELECT count(*) FROM outbox.check() WHERE severity = 'error';
SELECT * FROM t.deep;
SELECT * FROM t.lost;

-- It takes a snapshot that sees what was completed since.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT t.try('SELECT outbox.restore_pending()');
ROLLBACK;
SET default_transaction_read_only = on;
SELECT t.try('SELECT outbox.restore_pending()');
RESET default_transaction_read_only;
SELECT outbox.restore_pending();
SELECT outbox.restore_pending();
SELECT * FROM t.lost;
-- As they were, but due now and unleased.
SELECT m.event_type, p.priority, p.partition_key, p.sequence_id, p.attempt_count, p.max_attempts, p.created_at = b.created_at AS created_then,
	p.next_attempt_at <= clock_timestamp() AS due, p.claimed_by
FROM outbox.pending p JOIN outbox.messages m USING (outbox_id) LEFT JOIN t.before b USING (outbox_id) ORDER BY m.event_type COLLATE "C";
SELECT outbox.create_queue('gone');
SELECT outbox.restore_pending();
SELECT * FROM t.lost;
-- They are delivered, each once; what was leased is a new lease.
SELECT queue, count(*) FROM outbox.claim('w2', 100, queues => '{default,n,gone}') GROUP BY 1 ORDER BY 1;
SELECT error, count(*) FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending) p, outbox.complete_batch('w2', ids, tokens, array_fill('DISPATCHED'::text, ARRAY[cardinality(ids)])) GROUP BY 1;
SELECT message, no, state FROM t.ledger;
SELECT outbox.restore_pending();
-- The numbers go on.
SELECT sequence_id FROM outbox.enqueue('n4', '1', 'n', partition_key => 'k');

-- An operator may; names of the caller's mean nothing.
CREATE ROLE regress_outbox_admin IN ROLE outbox_operator;
SELECT t.lose();
CREATE FUNCTION public.max(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
SET search_path = public, pg_catalog;
SET ROLE regress_outbox_admin;
SELECT outbox.restore_pending();
RESET ROLE;
RESET search_path;
DROP FUNCTION public.max(bigint);
SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP ROLE regress_outbox_admin;
