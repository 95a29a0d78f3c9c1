--
-- enqueue: what one call writes, its defaults and bounds, the wall clock, and that
-- a refused call writes nothing. Duplicates: idempotency; numbers: numbered.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- One row, a UUIDv7 (version 7, variant 10) that carries the time of the call. The
-- clock is the wall clock, not the start of the transaction.
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT outbox_id AS id, sequence_id, created FROM outbox.enqueue('order.created', '{"n": 1}') \gset
SELECT clock_timestamp() AS after \gset
\echo :created :{?sequence_id} :sequence_id
SELECT now() < :'before' AS transaction_is_older,
	created_at BETWEEN :'before' AND :'after' AS created_now
FROM outbox.messages WHERE outbox_id = :'id';
SELECT created_at = (SELECT created_at FROM outbox.messages WHERE outbox_id = :'id') AS same_created_at,
	next_attempt_at BETWEEN :'before' AND :'after' AS due_now
FROM outbox.pending WHERE outbox_id = :'id';
COMMIT;
SELECT substr(:'id', 15, 1) AS version, substr(:'id', 20, 1) IN ('8', '9', 'a', 'b') AS variant,
	('x' || replace(left(:'id', 13), '-', ''))::bit(48)::bigint
		BETWEEN floor(extract(epoch FROM :'before'::timestamptz) * 1000)
		AND floor(extract(epoch FROM :'after'::timestamptz) * 1000) AS carries_its_time;

-- The defaults.
SELECT queue, event_id = outbox_id AS event_id_is_outbox_id, event_type, aggregate_type, aggregate_id,
	partition_key, sequence_id, idempotency_key
FROM outbox.messages;
SELECT routing_key, priority, max_attempts, payload, headers, replay_of FROM outbox.messages;
SELECT queue, priority, partition_key, sequence_id, attempt_count, max_attempts, claimed_by, claimed_at, lease_token, lease_expires_at
FROM outbox.pending;
SELECT count(*) AS attempts FROM outbox.attempts;

-- Every argument arrives where it belongs, by position and by name.
SET outbox.max_delay = '20000 d';
SELECT outbox.create_queue('mail');
SELECT event_type, created FROM
	(VALUES ('by position')) v(event_type),
	outbox.enqueue(v.event_type, '[1, "two"]', 'mail', 'customer', 'c-1', 'key 1', 'once 1',
		'00000000-0000-4000-8000-000000000001', '{"h": 1}', 'route.1', 15, '2050-01-01 00:00+00', 3);
SELECT created FROM outbox.enqueue(
	max_attempts => 3, deliver_at => '2050-01-01 00:00+00', priority => 15, routing_key => 'route.1',
	headers => '{"h": 1}', event_id => '00000000-0000-4000-8000-000000000002', idempotency_key => 'once 2',
	partition_key => 'key 1', aggregate_id => 'c-1', aggregate_type => 'customer', queue => 'mail',
	payload => '[1, "two"]', event_type => 'by name');
SELECT event_type, queue, event_id, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key
FROM outbox.messages WHERE queue = 'mail' ORDER BY event_id;
SELECT event_type, routing_key, priority, max_attempts, payload, headers, replay_of
FROM outbox.messages WHERE queue = 'mail' ORDER BY event_id;
SELECT queue, priority, partition_key, sequence_id, attempt_count, max_attempts, next_attempt_at
FROM outbox.pending WHERE queue = 'mail' ORDER BY outbox_id;

RESET outbox.max_delay;

-- deliver_at: not before, and in the past the same as now: it overtakes nothing, in an array neither.
SELECT created FROM outbox.enqueue('late', '1', deliver_at => clock_timestamp() + interval '1 day');
SELECT created FROM outbox.enqueue('past', '1', deliver_at => '2000-01-01 00:00+00');
SELECT message, state FROM t.pending WHERE message IN ('late', 'past');
SELECT count(*) FROM outbox.enqueue_batch('default', '[{"event_type": "past 1", "payload": 1}, {"event_type": "past 2", "payload": 1, "deliver_at": "1970-01-01T00:00:00Z"},
	{"event_type": "past 3", "payload": 1, "deliver_at": "2000-01-01T00:00:00Z"}, {"event_type": "past 4", "payload": 1}]');
SELECT event_type, created_at - next_attempt_at AS due_before_it_was_said FROM outbox.pending p JOIN outbox.messages m USING (outbox_id, created_at) WHERE event_type LIKE 'past%' ORDER BY 1;
SELECT bool_and(oldest_due_age_seconds < 3600) AS sound FROM outbox.status;
SELECT string_agg(event_type, ', ' ORDER BY n) FROM outbox.claim('w') WITH ORDINALITY c(outbox_id, queue, event_id, event_type, aggregate_type, aggregate_id, partition_key,
	sequence_id, idempotency_key, routing_key, priority, payload, headers, attempt_count, max_attempts, created_at, lease_token, lease_expires_at, payload_bytes, content_type, n);

-- Any JSON is a payload, a JSON null too.
SELECT payload, jsonb_typeof(payload) FROM (
	SELECT m.payload FROM (VALUES ('null'), ('true'), ('0'), ('""'), ('[]'), ('{}'), ('{"a": {"b": [null]}}')) v(p)
	CROSS JOIN LATERAL outbox.enqueue('any', v.p::jsonb) e
	CROSS JOIN LATERAL (SELECT v.p::jsonb) m(payload)) AS enqueued;
SELECT payload FROM outbox.messages WHERE event_type = 'any' ORDER BY outbox_id;

-- An object in a string was encoded twice: refused, unless the queue says that it wants any payload.
SELECT outbox.create_queue('any', payload_kind => 'any');
SELECT v.p, q, x FROM (VALUES (1, '"{\"a\": 1}"'), (2, '" {} "'), (3, '"\n{\"a\": \"\\u00e9 \\\" \"}"'), (4, '"{"'), (5, '"{a: 1}"'), (6, '"{} {}"'), (7, '"[{}]"'), (8, '"x {}"'),
	(9, '""'), (10, '["{}"]'), (11, '{"a": "{}"}')) v(n, p) CROSS JOIN unnest('{default,any}'::text[]) q
	CROSS JOIN LATERAL (SELECT string_agg(y, ' / ') FROM t.try(format('SELECT outbox.enqueue(''encoded'', %L, %L)', p, q)) y) z(x) ORDER BY n, q;
SELECT t.try($$SELECT outbox.enqueue_and_claim('w', 'encoded', '"{}"')$$);
SELECT outbox.enqueue_batch('default', '[{"event_type": "encoded", "payload": {}}, {"event_type": "encoded", "payload": "{}"}]');
SELECT outbox.alter_queue('any', payload_kind => 'object');
SELECT t.try($$SELECT outbox.enqueue('encoded', '"{}"', 'any')$$);
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.create_queue('bad', payload_kind => 'array')$$),
	($$SELECT outbox.create_queue('bad', payload_kind => NULL)$$),
	($$SELECT outbox.alter_queue('any', payload_kind => '')$$)) v(s);
-- What was let in once is replayed.
SELECT count(outbox.cancel(outbox_id, 'r')) FROM outbox.messages WHERE queue = 'any' AND payload = '" {} "';
SELECT count(outbox.replay(outbox_id)) FROM outbox.dead_letters WHERE queue = 'any';

-- Ids only ever grow within a backend, also within one millisecond.
SELECT count(*) AS enqueued, count(DISTINCT outbox_id) AS ids, bool_and(grows) AS growing
FROM (
	SELECT outbox_id, outbox_id > lag(outbox_id, 1, '00000000-0000-0000-0000-000000000000') OVER (ORDER BY g) AS grows
	FROM generate_series(1, 1000) g, LATERAL outbox.enqueue('many', to_jsonb(g))) AS e;

-- Anywhere a function can be called.
CREATE TABLE t.orders (id int);
CREATE FUNCTION t.on_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox.enqueue('from a trigger', to_jsonb(new));
	RETURN NULL;
END
$$;
CREATE TRIGGER on_order AFTER INSERT ON t.orders FOR EACH ROW EXECUTE FUNCTION t.on_order();
INSERT INTO t.orders VALUES (1), (2);
WITH inserted AS (INSERT INTO t.orders VALUES (3) RETURNING id)
SELECT created FROM inserted, outbox.enqueue('from a CTE', to_jsonb(id));
PREPARE say(text, jsonb) AS SELECT created FROM outbox.enqueue($1, $2);
EXECUTE say('prepared', '1');
EXECUTE say('prepared', '2');
DEALLOCATE say;
SELECT event_type, payload FROM outbox.messages
WHERE event_type LIKE 'from%' OR event_type = 'prepared' ORDER BY outbox_id;

-- How drivers send arguments: literals and parameters of no declared type find the function, declared
-- ones of another type by a cast.
PREPARE untyped AS SELECT created FROM outbox.enqueue($1, $2, aggregate_id => $3, idempotency_key => $4, event_id => $5, priority => $6, payload_bytes => $7);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped';
EXECUTE untyped('driver', '{}', '17', 'untyped', NULL, 1, NULL);
DEALLOCATE untyped;
SELECT s, string_agg(x, ' / ') FROM (VALUES
	(1, $$outbox.enqueue('driver', '{}')$$),
	(2, $$outbox.enqueue('driver', '{}'::jsonb, 'default')$$),
	(3, $$outbox.enqueue('driver'::varchar, '{}', aggregate_id => 'a'::varchar)$$),
	(4, $$outbox.enqueue('driver', '{}'::json)$$),
	(5, $$outbox.enqueue('driver', '{}'::json::jsonb)$$),
	(6, $$outbox.enqueue('driver', '{}'::text)$$),
	(7, $$outbox.enqueue('driver', '{}'::text::jsonb)$$),
	(8, $$outbox.enqueue('driver', '{}', aggregate_id => 17)$$),
	(9, $$outbox.enqueue('driver', '{}', aggregate_id => 17::bigint::text)$$),
	(10, $$outbox.enqueue('driver', '{}', aggregate_id => gen_random_uuid())$$),
	(11, $$outbox.enqueue('driver', '{}', aggregate_id => gen_random_uuid()::text)$$),
	(12, $$outbox.enqueue('driver', '{}', priority => 3::smallint)$$),
	(13, $$outbox.enqueue('driver', '{}', priority => 3::bigint)$$),
	(14, $$outbox.enqueue('driver', '{}', priority => 3::bigint::int)$$),
	(15, $$outbox.enqueue('driver', payload_bytes => '\x00', content_type => 'a')$$),
	(16, $$outbox.enqueue('driver', NULL, payload_bytes => '\x00'::bytea)$$),
	(17, $$outbox.enqueue_batch('default', '[]')$$),
	(18, $$outbox.enqueue_batch('default', '[]'::json::jsonb)$$),
	(19, $$outbox.enqueue_and_claim('w', 'driver', '{}')$$)) v(n, s), LATERAL (SELECT split_part(t.try('SELECT ' || s), E'\n', 1)) z(x)
WHERE x !~ '^  HINT' GROUP BY n, s ORDER BY n;

-- What is refused, naming the argument and the value, at the top level: an
-- ordinary error, after which the session goes on.
SELECT count(*) AS messages FROM outbox.messages \gset
SELECT * FROM outbox.enqueue('e', '1', queue => 'nowhere');
\echo :SQLSTATE
SELECT * FROM outbox.enqueue('e', '1', priority => 16);
\echo :SQLSTATE
SELECT * FROM outbox.enqueue(NULL, '1');
\echo :SQLSTATE
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('', '1')$$),
	($$SELECT outbox.enqueue('e', NULL)$$),
	($$SELECT outbox.enqueue('e', '1', queue => NULL)$$),
	($$SELECT outbox.enqueue('e', '1', queue => '')$$),
	($$SELECT outbox.enqueue('e', '1', headers => NULL)$$),
	($$SELECT outbox.enqueue('e', '1', headers => '[]')$$),
	($$SELECT outbox.enqueue('e', '1', headers => 'null')$$),
	($$SELECT outbox.enqueue('e', '1', priority => NULL)$$),
	($$SELECT outbox.enqueue('e', '1', priority => -1)$$),
	($$SELECT outbox.enqueue('e', '1', priority => 65536)$$),
	($$SELECT outbox.enqueue('e', '1', priority => 2147483647)$$),
	($$SELECT outbox.enqueue('e', '1', max_attempts => 0)$$),
	($$SELECT outbox.enqueue('e', '1', max_attempts => -1)$$),
	($$SELECT outbox.enqueue('e', '1', deliver_at => 'infinity')$$),
	($$SELECT outbox.enqueue('e', '1', deliver_at => '-infinity')$$),
	($$SELECT outbox.enqueue('e', '1', deliver_at => '290000-01-01 00:00+00')$$)) AS v(s);
SELECT count(*) = :messages AS nothing_written FROM outbox.messages;
SELECT count(*) = :messages AS nothing_pending FROM outbox.pending;

-- The ends of the ranges.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('e', '1', priority => 0)$$),
	($$SELECT outbox.enqueue('e', '1', priority => 15)$$),
	($$SELECT outbox.enqueue('e', '1', max_attempts => 1)$$),
	($$SELECT outbox.enqueue('e', '1', max_attempts => 2147483647)$$)) AS v(s);

-- A queue that was made, dropped or altered just now, in the same transaction.
BEGIN;
SELECT outbox.create_queue('new');
SELECT created FROM outbox.enqueue('new', '1', queue => 'new');
ROLLBACK;
SELECT t.try($$SELECT outbox.enqueue('new', '1', queue => 'new')$$);
