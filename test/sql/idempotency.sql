--
-- Idempotency keys and event ids: the first row's ids come back, whenever and
-- however often, within the key's scope and never beyond it. (Two sessions at
-- once: the isolation specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('a'), outbox.create_queue('b'), outbox.create_queue('n', ordering => 'numbered');

-- The same key again: the first ids, whatever else the call says.
SELECT outbox_id AS first FROM outbox.enqueue('one', '{"v": 1}', 'a', aggregate_id => 'x', idempotency_key => 'k') \gset
SELECT outbox_id = :'first' AS the_first, sequence_id, created
FROM outbox.enqueue('two', '{"v": 2}', 'a', aggregate_id => 'x', idempotency_key => 'k', priority => 9);
SELECT event_type, payload FROM outbox.messages;
SELECT message, state FROM t.pending;

-- B12 (agno): the scope is (queue, aggregate_id or empty, key), and its parts do not
-- run into each other.
SELECT queue, aggregate_id, idempotency_key, e.created FROM (VALUES
	(1, 'b', 'x', 'k'), (2, 'a', 'y', 'k'), (3, 'a', 'x', 'K'), (4, 'a', 'x', 'k '),
	(5, 'a', 'xk', ' '), (6, 'a', '', 'xk'), (7, 'a', NULL, 'k'), (8, 'a', '', 'k'), (9, 'a', 'ak', 'x')) AS v(n, q, a, k)
CROSS JOIN LATERAL outbox.enqueue('scope ' || n, '1', q, aggregate_id => a, idempotency_key => k) AS e
JOIN LATERAL (SELECT q AS queue, a AS aggregate_id, k AS idempotency_key) AS s ON true
ORDER BY n;
-- NULL and '' are one aggregate_id; the aggregate's type is no part of the scope.
SELECT created FROM outbox.enqueue('t', '1', 'a', 'type 1', 'agg', idempotency_key => 'k');
SELECT created FROM outbox.enqueue('t', '1', 'a', 'type 2', 'agg', idempotency_key => 'k');

-- A given event_id is a key within its queue, and another kind of key than the
-- idempotency key of the same text.
SELECT outbox_id AS by_event FROM outbox.enqueue('e1', '1', 'a', event_id => '00000000-0000-4000-8000-000000000001') \gset
SELECT outbox_id = :'by_event' AS the_first, created FROM outbox.enqueue('e2', '1', 'a', event_id => '00000000-0000-4000-8000-000000000001');
SELECT created FROM outbox.enqueue('e3', '1', 'b', event_id => '00000000-0000-4000-8000-000000000001');
SELECT created FROM outbox.enqueue('e4', '1', 'a', idempotency_key => '00000000-0000-4000-8000-000000000001');
SELECT event_type, event_id FROM outbox.messages WHERE event_id::text LIKE '0000%' ORDER BY event_type;
-- Both given: either finds the message.
SELECT outbox_id AS both FROM outbox.enqueue('both', '1', 'a', idempotency_key => 'both', event_id => '00000000-0000-4000-8000-000000000002') \gset
SELECT outbox_id = :'both' AS the_first, created FROM outbox.enqueue('again', '1', 'a', idempotency_key => 'both');
SELECT outbox_id = :'both' AS the_first, created FROM outbox.enqueue('again', '1', 'a', event_id => '00000000-0000-4000-8000-000000000002');
SELECT outbox_id = :'both' AS the_first, created
FROM outbox.enqueue('again', '1', 'a', idempotency_key => 'both', event_id => '00000000-0000-4000-8000-000000000002');
-- One of them new, the other known: a duplicate all the same.
SELECT outbox_id = :'both' AS the_first, created
FROM outbox.enqueue('again', '1', 'a', idempotency_key => 'other', event_id => '00000000-0000-4000-8000-000000000002');
SELECT outbox_id = :'both' AS the_first, created
FROM outbox.enqueue('again', '1', 'a', idempotency_key => 'both', event_id => '00000000-0000-4000-8000-000000000003');
SELECT count(*) FROM outbox.messages WHERE event_type = 'again';

-- Without a key the same twice is two messages.
SELECT e.created FROM generate_series(1, 2) g, LATERAL outbox.enqueue('no key', to_jsonb(g), 'a', aggregate_id => 'x') e;
SELECT count(*) FROM outbox.messages WHERE event_type = 'no key';

-- Before and after the terminal outcome, and after a replay: the first ids.
SELECT outbox_id AS done FROM outbox.enqueue('done', '1', idempotency_key => 'done') \gset
SELECT outbox_id AS dead FROM outbox.enqueue('dead', '1', idempotency_key => 'dead') \gset
SELECT c.event_type, x.recorded
FROM outbox.claim('w') AS c,
	LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', (CASE c.event_type WHEN 'done' THEN 'DISPATCHED' ELSE 'FAILED' END)::outbox.attempt_state) AS x;
SELECT outbox_id = :'done' AS the_first, created FROM outbox.enqueue('late', '1', idempotency_key => 'done');
SELECT outbox_id = :'dead' AS the_first, created FROM outbox.enqueue('late', '1', idempotency_key => 'dead');
SELECT outbox.replay(:'dead') <> :'dead' AS replayed;
SELECT outbox_id = :'dead' AS the_first, created FROM outbox.enqueue('late', '1', idempotency_key => 'dead');
SELECT event_type, idempotency_key, replay_of IS NOT NULL AS is_replay FROM outbox.messages WHERE event_type IN ('dead', 'late') ORDER BY outbox_id;

-- Within one transaction, and after a savepoint's rollback.
BEGIN;
SELECT created FROM outbox.enqueue('tx', '1', idempotency_key => 'tx');
SELECT created FROM outbox.enqueue('tx', '1', idempotency_key => 'tx');
SAVEPOINT s;
SELECT created FROM outbox.enqueue('sp', '1', idempotency_key => 'sp');
ROLLBACK TO s;
SELECT created FROM outbox.enqueue('sp', '2', idempotency_key => 'sp');
ROLLBACK;
SELECT created FROM outbox.enqueue('tx', '3', idempotency_key => 'tx');
SELECT event_type, payload FROM outbox.messages WHERE event_type IN ('tx', 'sp');

-- Within one statement.
SELECT e.created FROM generate_series(1, 3) g, LATERAL outbox.enqueue('stmt', to_jsonb(g), idempotency_key => 'stmt') AS e;

-- A duplicate uses up no number and returns the first one's.
SELECT sequence_id, created FROM outbox.enqueue('n1', '1', 'n', partition_key => 'p', idempotency_key => 'n1');
SELECT sequence_id, created FROM outbox.enqueue('n2', '1', 'n', partition_key => 'p', idempotency_key => 'n2');
SELECT sequence_id, created FROM outbox.enqueue('nx', '1', 'n', partition_key => 'p', idempotency_key => 'n1');
SELECT sequence_id, created FROM outbox.enqueue('nx', '1', 'n', partition_key => 'other', idempotency_key => 'n2');
SELECT sequence_id, created FROM outbox.enqueue('n3', '1', 'n', partition_key => 'p');
SELECT * FROM outbox.sequences ORDER BY partition_key;

-- A duplicate is told apart from a wrong call: arguments are checked all the same.
SELECT t.try($$SELECT outbox.enqueue('', '1', 'a', aggregate_id => 'x', idempotency_key => 'k')$$);

-- A remembered key never holds old data: it is a row of its own, without payload.
SELECT octet_length(digest) AS digest, queue, k.outbox_id = :'done' AS message
FROM outbox.idempotency_keys k WHERE k.outbox_id = :'done';

-- What languages and forms give for none is no key: it would be one that all share.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('empty', '1', 'b', idempotency_key => '')$$),
	($$SELECT outbox.enqueue('empty', '1', 'b', event_id => '00000000-0000-0000-0000-000000000000')$$),
	($$SELECT outbox.enqueue('empty', '1', 'b', partition_key => '')$$),
	($$SELECT outbox.enqueue('empty', '1', 'n', partition_key => '')$$),
	($$SELECT outbox.take_number('n', '')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'empty', '1', 'b', idempotency_key => '')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'empty', '1', 'b', event_id => '00000000-0000-0000-0000-000000000000')$$),
	($$SELECT outbox.enqueue_batch('b', '[{"event_type": "empty", "payload": 1}, {"event_type": "empty", "payload": 1, "idempotency_key": ""}]')$$),
	($$SELECT outbox.enqueue_batch('b', '[{"event_type": "empty", "payload": 1, "partition_key": ""}]')$$),
	($$SELECT outbox.enqueue_batch('b', '[{"event_type": "empty", "payload": 1, "event_id": "00000000-0000-0000-0000-000000000000"}]')$$)) AS v(s);
SELECT count(*) FROM outbox.messages WHERE event_type = 'empty';
-- An aggregate_id that is empty is the scope of those that have none.
SELECT n, e.created FROM (VALUES (1, NULL), (2, ''), (3, ' ')) v(n, a),
	LATERAL outbox.enqueue('empty', '1', 'b', aggregate_id => v.a, idempotency_key => 'scope') e ORDER BY n;

-- outbox.idempotency_window: for ever unless it is set; then by the age of the message
-- that was first, which its id tells.
SHOW outbox.idempotency_window;
CREATE FUNCTION t.id_from(moment timestamptz) RETURNS uuid LANGUAGE sql AS $$
	SELECT (left(h, 8) || '-' || right(h, 4) || '-7000-8000-000000000000')::uuid FROM (SELECT lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0')) x(h)
$$;
CREATE FUNCTION t.aged(age interval) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	answer boolean;
BEGIN
	PERFORM outbox.enqueue('aged', '1', 'b', idempotency_key => 'aged');
	UPDATE outbox.idempotency_keys SET outbox_id = t.id_from(clock_timestamp() - age) WHERE outbox_id = t.id('aged');
	SELECT created INTO answer FROM outbox.enqueue('aged again', '1', 'b', idempotency_key => 'aged');
	RAISE EXCEPTION USING ERRCODE = 'UNDO0';
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	RETURN answer;
END
$$;
SELECT t.aged('1 h') AS created_again, t.aged('20 years') AS created_again_much_later;
SET outbox.idempotency_window = '1 day';
SELECT t.aged('23 h 59 min') AS created_again, t.aged('24 h 1 min') AS created_again_after_a_day;
SELECT e.created FROM generate_series(1, 2) g, LATERAL outbox.enqueue('fresh', to_jsonb(g), 'b', idempotency_key => 'fresh') e;
RESET outbox.idempotency_window;
SELECT t.try(format('SET outbox.idempotency_window = %L', v)) FROM (VALUES ('59 min'), ('-1 day'), ('1 month'), ('soon'), ('30 days'), ('')) x(v);
RESET outbox.idempotency_window;

-- B14 (Convoy): keys do not know partitions. The first message lies in a partition
-- of its own, which is detached and dropped; its key is remembered all the same.
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT outbox_id AS first FROM outbox.enqueue('first', '1', idempotency_key => 'k', event_id => '00000000-0000-4000-8000-000000000001') \gset
SELECT tableoid::regclass AS leaf, replace(tableoid::regclass::text, 'messages', 'attempts') AS attempts_leaf,
	tableoid <> 'outbox.messages_default'::regclass AS dated FROM outbox.messages \gset
\echo :dated
SELECT recorded FROM outbox.claim('w') AS c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
ALTER TABLE outbox.messages DETACH PARTITION :leaf;
ALTER TABLE outbox.attempts DETACH PARTITION :attempts_leaf;
SELECT created FROM outbox.enqueue('second', '1');
SELECT event_type, tableoid = 'outbox.messages_default'::regclass AS elsewhere FROM outbox.messages;
SELECT outbox_id = :'first' AS the_first, created FROM outbox.enqueue('again', '1', idempotency_key => 'k');
DROP TABLE :leaf, :attempts_leaf;
SELECT outbox_id = :'first' AS the_first, created FROM outbox.enqueue('again', '1', idempotency_key => 'k');
SELECT outbox_id = :'first' AS the_first, created FROM outbox.enqueue('again', '1', event_id => '00000000-0000-4000-8000-000000000001');
SELECT count(*) AS messages FROM outbox.messages;
