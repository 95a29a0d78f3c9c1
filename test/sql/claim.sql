--
-- claim: which messages, how many, in what order, for how long; expired leases and
-- ceilings that were lowered. (Several workers at once: the isolation specs.)
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('a', lease => '2 hours'), outbox.create_queue('b'), outbox.create_queue('n', ordering => 'numbered');

-- What a claim returns is what was enqueued, and its lease is in pending.
SELECT created FROM outbox.enqueue('full', '{"v": [1, null]}', 'n', 'customer', 'c-1', 'key', 'once',
	'00000000-0000-4000-8000-000000000001', '{"h": 1}', 'route', 7, NULL, 9);
SELECT created FROM outbox.enqueue('bare', 'null', 'n');
BEGIN;
SELECT clock_timestamp() AS before \gset
CREATE TABLE t.claimed AS SELECT * FROM outbox.claim('w', queues => '{n}');
SELECT clock_timestamp() AS after \gset
COMMIT;
SELECT queue, event_id = outbox_id AS own_event_id, event_type, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key FROM t.claimed;
SELECT event_id, routing_key, priority, payload, headers, attempt_count, max_attempts FROM t.claimed WHERE event_type = 'full';
SELECT routing_key, priority, payload, headers, attempt_count, max_attempts FROM t.claimed WHERE event_type = 'bare';
SELECT c.event_type, m.created_at = c.created_at AS created_at, p.claimed_by,
	p.lease_token = c.lease_token AS token, p.lease_expires_at = c.lease_expires_at AS expires,
	p.claimed_at BETWEEN :'before' AND :'after' AS claimed_at,
	c.lease_expires_at BETWEEN :'before'::timestamptz + interval '30 s' AND :'after'::timestamptz + interval '30 s' AS lease
FROM t.claimed c JOIN outbox.messages m USING (outbox_id) JOIN outbox.pending p USING (outbox_id);
-- A token of its own for each, from a strong source (version 4).
SELECT count(DISTINCT lease_token) AS tokens, min(substr(lease_token::text, 15, 1)) AS version FROM t.claimed;
-- No attempt yet: in flight is a lease.
SELECT count(*) AS attempts FROM outbox.attempts;
-- What is leased is not claimed again.
SELECT * FROM outbox.claim('other', queues => '{n}');

-- How long: the argument, or else each queue's own.
SELECT count(*) FROM (VALUES ('a1', 'a'), ('b1', 'b'), ('a2', 'a')) v(m, q), LATERAL outbox.enqueue(m, '1', q);
SELECT event_type FROM outbox.claim('w', 1, '1 hour', '{a}');
SELECT event_type FROM outbox.claim('w', queues => '{a, b}');
SELECT t.lease('a1') AS a1, t.lease('a2') AS a2, t.lease('b1') AS b1;

-- The order of the rows is the order of the claim (no ORDER BY here): queues as
-- given, then the highest priority, then the longest due.
SELECT outbox.create_queue('x'), outbox.create_queue('y');
CREATE TABLE t.order AS SELECT * FROM (VALUES ('x', 'x 0 old', 0, 9), ('x', 'x 0 new', 0, 1), ('x', 'x 15 new', 15, 1), ('x', 'x 3', 3, 5),
	('x', 'x 15 old', 15, 2), ('y', 'y 15', 15, 9), ('y', 'y 0', 0, 20), ('x', 'x 0 mid', 0, 5)) AS v(q, type, p, age);
SELECT count(*) FROM t.order, LATERAL outbox.enqueue(type, '1', q, priority => p);
UPDATE outbox.pending SET next_attempt_at = clock_timestamp() - make_interval(mins => age) FROM t.order WHERE outbox_id = t.id(type);
BEGIN;
SELECT event_type FROM outbox.claim('w', 100, queues => '{x, y}');
ROLLBACK;
BEGIN;
SELECT event_type FROM outbox.claim('w', 100, queues => '{y, x}');
ROLLBACK;
-- The first of that order, when there are more than asked for.
SELECT event_type FROM outbox.claim('w', 3, queues => '{x, y}');
SELECT event_type FROM outbox.claim('w', 4, queues => '{x, y}');
SELECT event_type FROM outbox.claim('w', 4, queues => '{x, y}');

-- queues: NULL is {default}; a name twice is no row twice; none is none.
SELECT count(*) FROM (VALUES ('d1', 'default'), ('d2', 'b')) v(m, q), LATERAL outbox.enqueue(m, '1', q);
SELECT event_type FROM outbox.claim('w');
SELECT event_type FROM outbox.claim('w', queues => '{b, b}');
SELECT t.try($$SELECT outbox.claim('w', queues => '{}')$$);

-- Scheduled: not before it is due.
SELECT created FROM outbox.enqueue('scheduled', '1', deliver_at => clock_timestamp() + interval '1 hour');
SELECT event_type FROM outbox.claim('w');
SELECT t.due('scheduled');
SELECT event_type FROM outbox.claim('w');

-- Paused: nothing of it, while other queues go on; what is out may be completed.
SELECT count(*) FROM (VALUES ('p1', 'a'), ('p2', 'b')) v(m, q), LATERAL outbox.enqueue(m, '1', q);
SELECT outbox.pause('a');
SELECT event_type FROM outbox.claim('w', queues => '{a, b}');
SELECT outbox.resume('a');
SELECT event_type FROM outbox.claim('w', queues => '{a, b}');

-- B01 (delayed_job): never more than asked for, nor a row twice, under any planner
-- setting and wherever the call stands in the query; the other queue is untouched.
SELECT outbox.create_queue('t1'), outbox.create_queue('t2');
SELECT count(*) FROM generate_series(1, 500) g, (VALUES ('t1'), ('t2')) v(q), LATERAL outbox.enqueue('t', to_jsonb(g), q, partition_key => 'k' || g);
ANALYZE outbox.pending, outbox.messages;
CREATE TABLE t.handed_out (outbox_id uuid, asked int, call int);
CREATE FUNCTION t.claim_under_all_settings() RETURNS TABLE (calls bigint, surplus bigint, rows bigint) LANGUAGE plpgsql AS $$
DECLARE
	setting text;
	settings text[] := '{enable_hashjoin, enable_mergejoin, enable_material, enable_seqscan, enable_indexscan, enable_bitmapscan, enable_nestloop, enable_sort}';
	call int := 0;
	size int;
BEGIN
	-- Each one off alone, then one more off each time, then all on.
	FOR i IN 1 .. 2 * cardinality(settings) + 1 LOOP
		FOR j IN 1 .. cardinality(settings) LOOP
			PERFORM set_config(settings[j], CASE WHEN i = j OR (i > cardinality(settings) AND j <= 2 * cardinality(settings) + 1 - i) THEN 'off' ELSE 'on' END, true);
		END LOOP;
		FOREACH size IN ARRAY '{1, 5}'::int[] LOOP
			call := call + 1;
			INSERT INTO t.handed_out SELECT c.outbox_id, size, call FROM outbox.claim('w', size, '5 min', '{t1}') AS c;
			call := call + 1;
			INSERT INTO t.handed_out SELECT m.outbox_id, size, call
			FROM outbox.messages m WHERE m.outbox_id IN (SELECT c.outbox_id FROM outbox.claim('w', size, '5 min', '{t1}') AS c);
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT count(*), sum(greatest(n - asked, 0))::bigint, sum(n)::bigint
		FROM (SELECT h.call, h.asked, count(*) AS n FROM t.handed_out h GROUP BY 1, 2) s;
END
$$;
SELECT * FROM t.claim_under_all_settings();
SELECT count(*) - count(DISTINCT outbox_id) AS twice FROM t.handed_out;
SELECT queue, count(*) AS leased FROM outbox.pending WHERE queue IN ('t1', 't2') AND claimed_by IS NOT NULL GROUP BY 1;
-- The inner side of a nested loop is scanned again, not claimed again.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT count(*) AS rows, count(DISTINCT outbox_id) AS messages FROM generate_series(1, 3), outbox.claim('w', 2, queues => '{t2}');
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
SELECT count(*) AS leased FROM outbox.pending WHERE queue = 't2' AND claimed_by IS NOT NULL;
-- Once for each row where the query says so, and no more than asked for when the
-- query reads only the first rows.
SELECT count(*) AS rows, count(DISTINCT outbox_id) AS messages FROM generate_series(1, 3) g, LATERAL outbox.claim('w', g, queues => '{t2}');
SELECT (c.c).lease_token IS NOT NULL AS leased FROM (SELECT outbox.claim('w', 5, queues => '{t2}') AS c LIMIT 1) AS c;
SELECT count(*) - 8 <= 5 AS within FROM outbox.pending WHERE queue = 't2' AND claimed_by IS NOT NULL;
BEGIN;
DECLARE c CURSOR FOR SELECT payload FROM outbox.claim('cursor', 3, queues => '{t2}');
FETCH 1 FROM c;
FETCH ALL FROM c;
SELECT count(*) FROM outbox.pending WHERE claimed_by = 'cursor';
COMMIT;
-- All that there is, when more is asked for.
SELECT count(*) < 2147483647 AND count(*) > 400 AS the_rest FROM outbox.claim('w', 2147483647, queues => '{t2}');
SELECT count(*) AS unleased FROM outbox.pending WHERE queue = 't2' AND claimed_by IS NULL;

-- The same statement does not see what it enqueues; the next one does.
SELECT outbox.create_queue('s');
WITH e AS MATERIALIZED (SELECT outbox_id FROM outbox.enqueue('s1', '1', 's'))
SELECT c.event_type FROM e, LATERAL outbox.claim('w' || left(e.outbox_id::text, 0), queues => '{s}') AS c;
SELECT message, state FROM t.pending WHERE queue = 's';
SELECT event_type FROM outbox.claim('w', queues => '{s}');

-- An expired lease: the lost try is recorded first, then the row is leased again.
SELECT outbox_id AS id, lease_token AS t1 FROM outbox.pending WHERE queue = 's' \gset
INSERT INTO t.known VALUES (:'t1', 'first token');
SELECT t.expire('s1');
SELECT event_type, attempt_count, lease_token <> :'t1' AS new_token FROM outbox.claim('w2', queues => '{s}');
SELECT * FROM t.ledger WHERE message = 's1';
SELECT lease_token = :'t1' AS token, claimed_at IS NOT NULL AS claimed, completed_at, latency_ms FROM outbox.attempts WHERE outbox_id = :'id';
SELECT * FROM t.pending WHERE message = 's1';
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'id', :'t1'));
-- At the ceiling that ends the message, and the rest of the batch is leased.
SELECT outbox.create_queue('c', max_attempts => 1);
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue('c' || g, '1', 'c');
UPDATE outbox.pending SET next_attempt_at = clock_timestamp() - make_interval(mins => 10 - g) FROM generate_series(1, 3) g WHERE outbox_id = t.id('c' || g);
SELECT event_type FROM outbox.claim('w', 2, queues => '{c}');
SELECT t.expire('c1'), t.expire('c2');
SELECT event_type, attempt_count FROM outbox.claim('w2', 2, queues => '{c}');
SELECT * FROM t.ledger WHERE message LIKE 'c_';
SELECT * FROM t.pending WHERE queue = 'c';

-- B07 (Oban): a ceiling that was lowered below the attempts used. Those messages
-- end as FAILED / RETRIES_EXHAUSTED; fresh ones behind them are not held up.
SELECT outbox.create_queue('l', max_attempts => 5);
SELECT count(*) FROM generate_series(1, 30) g, outbox.enqueue('used', to_jsonb(g), 'l');
SELECT count(*) AS retried FROM generate_series(1, 2) g,
	LATERAL (SELECT array_agg(c.outbox_id) AS ids, array_agg(c.lease_token) AS tokens, array_agg('RETRYABLE'::outbox.attempt_state) AS states,
		array_agg(interval '0') AS delays FROM outbox.claim('w' || g, 100, queues => '{l}') AS c) AS c,
	LATERAL outbox.complete_batch('w' || g, ids, tokens, states, retry_delays => delays) AS r WHERE recorded = 'RETRYABLE';
SELECT outbox.alter_queue('l', max_attempts => 2);
SELECT count(*) FROM generate_series(1, 10) g, outbox.enqueue('fresh', to_jsonb(g), 'l');
SELECT event_type, count(*) FROM outbox.claim('w', 10, queues => '{l}') GROUP BY 1;
SELECT event_type, count(*) FROM outbox.claim('w', 100, queues => '{l}') GROUP BY 1;
SELECT message, no, state, worker_id, error_code, completed, count(*) FROM t.ledger WHERE message = 'used' GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 2;
SELECT event_type, count(*), min(attempts), max(attempts) FROM outbox.dead_letters WHERE queue = 'l' GROUP BY 1;
SELECT message, state, count(*) FROM t.pending WHERE queue = 'l' GROUP BY 1, 2;

-- The ledger decides, not the cached count.
SELECT outbox.create_queue('cached', max_attempts => 3);
SELECT created FROM outbox.enqueue('cached', '1', 'cached');
UPDATE outbox.pending SET attempt_count = 50 WHERE queue = 'cached';
SELECT event_type FROM outbox.claim('w', queues => '{cached}');
SELECT attempt_no, recorded FROM outbox.complete(t.id('cached'), t.token('cached'), 'w', 'RETRYABLE', retry_delay => '0');
SELECT * FROM t.pending WHERE queue = 'cached';

-- One row that cannot be repaired stops no other (the warning holds an id: not
-- shown here): the ledger refuses this worker.
SELECT outbox.create_queue('r');
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue('r' || g, '1', 'r');
SELECT event_type FROM outbox.claim('good', 1, queues => '{r}');
SELECT event_type FROM outbox.claim('bad', 1, queues => '{r}');
SELECT t.expire('r1'), t.expire('r2');
UPDATE outbox.pending SET lease_expires_at = lease_expires_at - interval '1 h' WHERE outbox_id = t.id('r2');
ALTER TABLE outbox.attempts_default ADD CONSTRAINT refused CHECK (worker_id <> 'bad');
SET client_min_messages = error;
SELECT count(*) FROM outbox.claim('next', 1, queues => '{r}');
SELECT count(*) FROM outbox.claim('next', 10, queues => '{r}');
RESET client_min_messages;
SELECT * FROM t.pending WHERE queue = 'r';
SELECT * FROM t.ledger WHERE message LIKE 'r_';
ALTER TABLE outbox.attempts_default DROP CONSTRAINT refused;
SELECT event_type, attempt_count FROM outbox.claim('next', 10, queues => '{r}');

-- What is refused.
SELECT * FROM outbox.claim('');
\echo :SQLSTATE
SELECT * FROM outbox.claim('w', queues => '{default, nowhere}');
\echo :SQLSTATE
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.claim(NULL)$$),
	($$SELECT outbox.claim('w', NULL)$$),
	($$SELECT outbox.claim('w', 0)$$),
	($$SELECT outbox.claim('w', -1)$$),
	($$SELECT outbox.claim('w', -2147483648)$$),
	($$SELECT outbox.claim('w', lease => '0')$$),
	($$SELECT outbox.claim('w', lease => '-1 s')$$),
	($$SELECT outbox.claim('w', lease => '1 month -31 days')$$),
	($$SELECT outbox.claim('w', lease => '178000000 years')$$),
	($$SELECT outbox.claim('w', queues => '{NULL}')$$),
	($$SELECT outbox.claim('w', queues => '{default, NULL}')$$),
	($$SELECT outbox.claim('w', queues => '{""}')$$),
	($$SELECT outbox.claim('w', queues => '{{default}, {default}}')$$),
	($$SELECT outbox.claim('w', wait => NULL)$$),
	($$SELECT outbox.claim('w', wait => '-1 s')$$),
	($$SELECT outbox.claim('w', wait => '1 month -31 days')$$)) AS v(s);
-- An array that does not begin at 1 is an array.
SELECT count(*) FROM outbox.claim('w', queues => '[5:6]={default,a}');
