--
-- Wake-up: one notification on outbox_pending for each queue and transaction, at its
-- commit; none for what is rolled back. psql prints what arrives; of that output only
-- those lines are shown, sorted, without the number of the process.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

\set heard '| sed -n "s/ received from server process with PID [0-9]*//p" | LC_ALL=C sort'
LISTEN outbox_pending;
SELECT outbox.create_queue('a'), outbox.create_queue('Ä "b"'), outbox.create_queue('n', ordering => 'numbered');
\o :heard

-- One message; many in one statement; many statements; two queues.
SELECT created FROM outbox.enqueue('one', '1');
SELECT count(*) FROM generate_series(1, 1000) g, outbox.enqueue('many', to_jsonb(g), 'a');
SELECT count(*) FROM outbox.enqueue_batch('n', (SELECT jsonb_agg('{"event_type": "batch", "payload": 1, "partition_key": "k"}'::jsonb) FROM generate_series(1, 100)));
\o
\o :heard
BEGIN;
SELECT created FROM outbox.enqueue('a1', '1', 'a');
SELECT created FROM outbox.enqueue('b1', '1', 'Ä "b"');
SELECT created FROM outbox.enqueue('a2', '1', 'a');
\echo nothing before the commit
COMMIT;
\o

-- Rolled back: nobody is woken. A savepoint's rollback takes back its own only.
\o :heard
BEGIN;
SELECT created FROM outbox.enqueue('gone', '1', 'a');
ROLLBACK;
\echo after the rollback
BEGIN;
SELECT created FROM outbox.enqueue('kept', '1', 'n');
SAVEPOINT s;
SELECT created FROM outbox.enqueue('kept too', '1', 'a');
RELEASE s;
SAVEPOINT s;
SELECT created FROM outbox.enqueue('gone', '1', 'default');
ROLLBACK TO s;
COMMIT;
\o
SELECT event_type FROM outbox.messages WHERE event_type IN ('gone', 'kept', 'kept too') ORDER BY 1;

-- At the top level of one statement that fails: nothing.
\o :heard
SELECT created, 1 / (length(event_type) - 1) FROM (VALUES ('ok'), ('x')) v(event_type), LATERAL outbox.enqueue(event_type, '1', 'a');
\o

-- From a deferred trigger, that is, during the commit itself.
CREATE TABLE t.orders (id int);
CREATE FUNCTION t.on_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox.enqueue('deferred', to_jsonb(new), 'a');
	RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER on_order AFTER INSERT ON t.orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION t.on_order();
\o :heard
BEGIN;
INSERT INTO t.orders VALUES (1), (2);
\echo nothing before the commit
COMMIT;
\o
SELECT count(*) FROM outbox.messages WHERE event_type = 'deferred';

-- A replay is a new message; a cancellation is none.
\o :heard
SELECT outbox.cancel(t.id('one'), 'r');
\echo replay
SELECT outbox.replay(t.id('one')) IS NOT NULL AS replayed;
\o

-- A queue's name is the payload, as it is; and a message of any size is a small
-- notification (B16, odd-jobs).
SELECT outbox.create_queue(repeat('q', 63));
\o :heard
SELECT created FROM outbox.enqueue('large', jsonb_build_object('x', repeat('a', 5000000)), repeat('q', 63), partition_key => repeat('k', 2000));
\o

-- A duplicate is no new work.
\o :heard
SELECT created FROM outbox.enqueue('dup', '1', 'a', idempotency_key => 'k');
\echo duplicate
SELECT created FROM outbox.enqueue('dup', '1', 'a', idempotency_key => 'k');
\o

-- maintain notifies the queues that have claimable messages: what fell due meanwhile.
SELECT count(*) FROM outbox.claim('w', 100000, queues => (SELECT array_agg(queue) FROM outbox.queues)) c,
	LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
\o :heard
SELECT created FROM outbox.enqueue('later', '1', 'a', deliver_at => clock_timestamp() + interval '1 h');
\o
SELECT t.due('later');
\o :heard
SELECT count(*) >= 0 AS maintained FROM outbox.maintain();
\o

-- LISTEN and NOTIFY of the caller's own go on beside it.
LISTEN mine;
\o :heard
BEGIN;
NOTIFY mine, 'x';
SELECT created FROM outbox.enqueue('beside', '1', 'a');
NOTIFY outbox_pending, 'a';
COMMIT;
\o
UNLISTEN *;
SELECT created FROM outbox.enqueue('unheard', '1', 'a');
