--
-- enqueue_batch: as enqueue one by one, in input order; names, types, defaults and
-- duplicates of its elements; all or nothing.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('numbered', ordering => 'numbered');

-- Input order, also where keys are taken in another order.
SELECT ordinality, sequence_id, created FROM outbox.enqueue_batch('numbered', '[
	{"event_type": "b1", "payload": 1, "partition_key": "b"},
	{"event_type": "a1", "payload": 2, "partition_key": "a"},
	{"event_type": "b2", "payload": 3, "partition_key": "b"},
	{"event_type": "c1", "payload": 4, "partition_key": "c"},
	{"event_type": "a2", "payload": 5, "partition_key": "a"}]');
SELECT event_type, partition_key, sequence_id, payload FROM outbox.messages ORDER BY outbox_id;
SELECT message, seq, state FROM t.pending;

-- The ids are those of the elements.
WITH b AS MATERIALIZED (
	SELECT * FROM outbox.enqueue_batch('default', '[{"event_type": "x1", "payload": 1}, {"event_type": "x2", "payload": 2}]'))
SELECT ordinality, created, substr(outbox_id::text, 15, 1) AS version,
	outbox_id > lag(outbox_id, 1, '00000000-0000-0000-0000-000000000000') OVER (ORDER BY ordinality) AS growing
FROM b;
SELECT event_type, payload FROM outbox.messages WHERE event_type LIKE 'x%' ORDER BY outbox_id;

-- Every argument of enqueue, and their defaults.
SET outbox.max_delay = '20000 d';
SELECT created FROM outbox.enqueue_batch('default', '[
	{"event_type": "all", "payload": {"deep": [1, null]}, "aggregate_type": "customer", "aggregate_id": "c-1",
	 "partition_key": "key 1", "idempotency_key": "once", "event_id": "00000000-0000-4000-8000-000000000001",
	 "headers": {"h": 1}, "routing_key": "route.1", "priority": 15, "deliver_at": "2050-01-01T00:00:00Z", "max_attempts": 3},
	{"event_type": "few", "payload": false},
	{"event_type": "nulls", "payload": 0, "aggregate_type": null, "aggregate_id": null, "partition_key": null,
	 "idempotency_key": null, "event_id": null, "headers": null, "routing_key": null, "priority": null,
	 "deliver_at": null, "max_attempts": null}]');
SELECT event_type, queue, event_id = outbox_id AS own_event_id, aggregate_type, aggregate_id, partition_key, idempotency_key
FROM outbox.messages WHERE event_type IN ('all', 'few', 'nulls') ORDER BY outbox_id;
SELECT event_type, headers, routing_key, priority, max_attempts, payload
FROM outbox.messages WHERE event_type IN ('all', 'few', 'nulls') ORDER BY outbox_id;
SELECT event_id FROM outbox.messages WHERE event_type = 'all';
SELECT priority, max_attempts, next_attempt_at FROM outbox.pending WHERE outbox_id = t.id('all');
SELECT message, state FROM t.pending WHERE message IN ('few', 'nulls');

-- deliver_at is one moment, whatever the session's time zone. A time without a zone is not.
BEGIN;
SET LOCAL timezone = 'Asia/Tokyo';
SELECT t.try(format('SELECT outbox.enqueue_batch(''default'', %L)', '[{"event_type": "at ' || s || '", "payload": 1, "deliver_at": "' || s || '"}]')) FROM (VALUES
	('2050-01-31T12:00:00Z'), ('2050-01-31 12:00:00+01:00'), ('2050-01-31T12:00-0130'), ('2050-01-31 12:00 Europe/Berlin'), ('2050-01-31 12:00 UTC'), ('now'),
	('2050-01-31T12:00:00'), ('2050-01-31 12:00'), ('2050-01-31'), ('Jan 31 2050 10:00 PM'), ('tomorrow')) v(s);
SHOW timezone;
SELECT event_type, next_attempt_at AT TIME ZONE 'UTC' AS utc FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type LIKE 'at 2%' ORDER BY event_type COLLATE "C";
ROLLBACK;
SELECT outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 1, "deliver_at": "2050-01-31 12:00"}]');
RESET outbox.max_delay;

-- null is a payload, as it is for enqueue; there is no default it could mean.
SELECT created FROM outbox.enqueue_batch('default', '[{"event_type": "null", "payload": null}]');
SELECT payload FROM outbox.messages WHERE event_type = 'null';

-- An array without elements says nothing.
SELECT * FROM outbox.enqueue_batch('default', '[]');

-- A key that comes twice in one array, or came before: one message, one number.
SELECT ordinality, sequence_id, created FROM outbox.enqueue_batch('numbered', '[
	{"event_type": "k1", "payload": 1, "partition_key": "k", "idempotency_key": "x"},
	{"event_type": "k2", "payload": 2, "partition_key": "k"},
	{"event_type": "k3", "payload": 3, "partition_key": "k", "idempotency_key": "x"},
	{"event_type": "k4", "payload": 4, "partition_key": "k", "event_id": "00000000-0000-4000-8000-00000000000a"},
	{"event_type": "k5", "payload": 5, "partition_key": "k", "event_id": "00000000-0000-4000-8000-00000000000a"},
	{"event_type": "k6", "payload": 6, "partition_key": "k", "idempotency_key": "y"}]');
SELECT ordinality, sequence_id, created FROM outbox.enqueue_batch('numbered', '[
	{"event_type": "k7", "payload": 7, "partition_key": "k", "idempotency_key": "y"},
	{"event_type": "k8", "payload": 8, "partition_key": "k"}]');
SELECT event_type, sequence_id FROM outbox.messages WHERE event_type LIKE 'k%' ORDER BY outbox_id;
SELECT ordinality, b.outbox_id = m.outbox_id AS the_first_one
FROM outbox.enqueue_batch('numbered', '[{"event_type": "again", "payload": 1, "idempotency_key": "x"}]') b,
	outbox.messages m WHERE m.event_type = 'k1';

-- B16 (odd-jobs): 5000 elements, one of them large; the transaction is one burst.
SELECT count(*) AS enqueued, bool_and(created) AS created FROM outbox.enqueue_batch('default', (
	SELECT jsonb_agg(jsonb_build_object('event_type', 'bulk', 'partition_key', 'k',
		'payload', CASE WHEN g = 2500 THEN to_jsonb(repeat('a', 5000000)) ELSE to_jsonb(g) END))
	FROM generate_series(1, 5000) g));
SELECT count(*) AS messages, max(length(payload::text)) AS longest FROM outbox.messages WHERE event_type = 'bulk';
SELECT count(*) AS pending FROM outbox.pending p JOIN outbox.messages m USING (outbox_id) WHERE event_type = 'bulk';

-- What is refused: the element is named, and nothing of the array is written.
SELECT count(*) AS messages FROM outbox.messages \gset
SELECT * FROM outbox.enqueue_batch('default', '[{"event_type": "ok", "payload": 1}, {"event_type": "bad", "payload": 1, "prioritty": 1}]');
\echo :SQLSTATE
SELECT * FROM outbox.enqueue_batch('nowhere', '[{"event_type": "ok", "payload": 1}]');
\echo :SQLSTATE
SELECT t.try(format('SELECT outbox.enqueue_batch(''default'', %L)', s)) FROM (VALUES
	(NULL), ('null'), ('{}'), ('"x"'), ('1'),
	('[1]'), ('[null]'), ('[[]]'), ('[{"event_type": "ok", "payload": 1}, "x"]'),
	('[{}]'),
	('[{"payload": 1}]'),
	('[{"event_type": "e"}]'),
	('[{"event_type": null, "payload": 1}]'),
	('[{"event_type": "", "payload": 1}]'),
	('[{"event_type": ["e"], "payload": 1}]'),
	('[{"event_type": "e", "payload": 1, "queue": "default"}]'),
	('[{"event_type": "e", "payload": 1, "": 1}]'),
	('[{"event_type": "e", "payload": 1, "Priority": 1}]'),
	('[{"event_type": "e", "payload": 1, "headers": []}]'),
	('[{"event_type": "e", "payload": 1, "headers": "x"}]'),
	('[{"event_type": "e", "payload": 1, "priority": 16}]'),
	('[{"event_type": "e", "payload": 1, "priority": -1}]'),
	('[{"event_type": "e", "payload": 1, "priority": 1.5}]'),
	('[{"event_type": "e", "payload": 1, "priority": 1e300}]'),
	('[{"event_type": "e", "payload": 1, "priority": "high"}]'),
	('[{"event_type": "e", "payload": 1, "priority": {}}]'),
	('[{"event_type": "e", "payload": 1, "max_attempts": 0}]'),
	('[{"event_type": "e", "payload": 1, "max_attempts": 3000000000}]'),
	('[{"event_type": "e", "payload": 1, "event_id": "x"}]'),
	('[{"event_type": "e", "payload": 1, "event_id": 5}]'),
	('[{"event_type": "e", "payload": 1, "deliver_at": "yesterdayish"}]'),
	('[{"event_type": "e", "payload": 1, "deliver_at": "infinity"}]'),
	('[{"event_type": "e", "payload": 1, "deliver_at": {}}]'),
	('[{"event_type": "ok", "payload": 1, "idempotency_key": "z"}, {"event_type": "e", "payload": 1, "priority": 99}]')) AS v(s);
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue_batch(NULL, '[]')$$),
	($$SELECT outbox.enqueue_batch('', '[]')$$),
	($$SELECT outbox.enqueue_batch('nowhere', '[]')$$)) AS v(s);
SELECT count(*) = :messages AS nothing_written FROM outbox.messages;

-- The key of an array that was refused is still free.
SELECT created FROM outbox.enqueue('after', '1', idempotency_key => 'z');

-- Of two keys the idempotency key decides, also when it stands only earlier in the array
-- and the event_id is that of an older message: as enqueue one by one.
SELECT outbox_id AS older FROM outbox.enqueue('older', '1', event_id => '00000000-0000-4000-8000-00000000beef') \gset
SELECT array_agg(created ORDER BY ordinality) AS created, count(DISTINCT outbox_id) AS messages, bool_or(outbox_id = :'older') AS the_older
FROM outbox.enqueue_batch('default', '[
	{"event_type": "e", "payload": 1, "idempotency_key": "two keys"},
	{"event_type": "e", "payload": 2, "idempotency_key": "two keys", "event_id": "00000000-0000-4000-8000-00000000beef"}]');
