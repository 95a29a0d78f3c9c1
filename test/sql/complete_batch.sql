--
-- complete_batch: one row an item, in input order; a bad item fails alone; arrays
-- that do not fit fail as a whole.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q', max_attempts => 3, backoff_base => '10 s', backoff_jitter => 0);

-- Each state, every column, in input order (which is not that of the ids).
SELECT count(*) FROM generate_series(1, 5) g, outbox.enqueue_and_claim('w', 'm' || g, '1', 'q') e;
SELECT t.id('m1') AS i1, t.id('m2') AS i2, t.id('m3') AS i3, t.id('m4') AS i4, t.id('m5') AS i5,
	t.token('m1') AS t1, t.token('m2') AS t2, t.token('m3') AS t3, t.token('m4') AS t4, t.token('m5') AS t5 \gset
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT (SELECT event_type FROM outbox.messages m WHERE m.outbox_id = r.outbox_id) AS message, r.attempt_no, r.recorded,
	CASE WHEN r.next_attempt_at BETWEEN :'before'::timestamptz + interval '10 s' AND clock_timestamp() + interval '10 s' THEN 'backoff'
		WHEN r.next_attempt_at BETWEEN :'before'::timestamptz + interval '1 h' AND clock_timestamp() + interval '1 h' THEN 'as asked'
		WHEN r.next_attempt_at IS NOT NULL THEN 'wrong' END AS next, r.error
FROM outbox.complete_batch('w',
	ARRAY[:'i4', :'i2', :'i5', :'i1']::uuid[], ARRAY[:'t4', :'t2', :'t5', :'t1']::uuid[],
	'{RETRYABLE, DISPATCHED, RETRYABLE, FAILED}',
	'{r4, r2, NULL, r1}', '{c4, NULL, c5, c1}', '{NULL, e2, e5, e1}', '{m4, m2, m5, NULL}', '{4, NULL, 0, 1}', '{NULL, NULL, 1 hour, NULL}') r;
COMMIT;
SELECT m.event_type, attempt_no, state, worker_id, reference, response_code, error_code, error_message, latency_ms, recorded_by,
	completed_at IS NOT NULL AS completed, a.claimed_at IS NOT NULL AS claimed
FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT * FROM t.pending;

-- Optional arrays may be left out; text arrays work for states.
SELECT attempt_no, recorded, error FROM outbox.complete_batch('w', ARRAY[:'i3']::uuid[], ARRAY[:'t3']::uuid[], ARRAY['DISPATCHED']::text[]);
SELECT reference, response_code, error_code, error_message, latency_ms FROM outbox.attempts WHERE outbox_id = :'i3';
SELECT recorded FROM outbox.enqueue_and_claim('w', 'varchar', '1') e,
	LATERAL outbox.complete_batch('w', ARRAY[e.outbox_id], ARRAY[e.lease_token], ARRAY['FAILED']::varchar[]);

-- The reply was lost: said again under the same tokens, each item tells what was
-- recorded. Lost leases, unknown ids, bad states and values, NULL elements: each its
-- own error; the good ones in between go through.
SELECT count(*) FROM generate_series(1, 9) g, outbox.enqueue_and_claim('w', 'n' || g, '1', 'q') e;
SELECT t.expire('n2');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (t.id('n3'), 1, 'DISPATCHED', clock_timestamp());
WITH items(n, id, token, state, latency, delay) AS (VALUES
	(1, t.id('n1'), t.token('n1'), 'DISPATCHED', 1, NULL::interval),
	(2, :'i4', :'t4', 'RETRYABLE', 1, '0'),
	(3, :'i1', :'t1', 'DISPATCHED', 1, NULL),
	(4, t.id('n2'), t.token('n2'), 'DISPATCHED', 1, NULL),
	(5, t.id('n3'), t.token('n3'), 'DISPATCHED', 1, NULL),
	(6, t.id('n4'), t.token('n4'), 'ZOMBIE_REQUEUE', 1, '0'),
	(7, t.id('n5'), t.token('n1'), 'DISPATCHED', 1, NULL),
	(8, '00000000-0000-7000-8000-000000000001', t.token('n1'), 'DISPATCHED', 1, NULL),
	(9, NULL, t.token('n1'), 'DISPATCHED', 1, NULL),
	(10, t.id('n6'), NULL, 'DISPATCHED', 1, NULL),
	(11, t.id('n6'), t.token('n6'), NULL, 1, '0'),
	(12, t.id('n7'), t.token('n7'), 'DISPATCHED', -1, NULL),
	(13, t.id('n8'), t.token('n8'), 'RETRYABLE', 1, '-1 s'),
	(14, t.id('n9'), t.token('n9'), 'RETRYABLE', NULL, NULL),
	(15, t.id('n6'), t.token('n6'), 'FAILED', 1, '0')),
arrays AS (
	SELECT array_agg(id::uuid ORDER BY n) AS ids, array_agg(token::uuid ORDER BY n) AS tokens, array_agg(state::outbox.attempt_state ORDER BY n) AS states,
		array_agg(latency ORDER BY n) AS latencies, array_agg(delay ORDER BY n) AS delays
	FROM items)
SELECT row_number() OVER () AS item, r.outbox_id IS NOT DISTINCT FROM ids[row_number() OVER ()] AS id,
	attempt_no, recorded, next_attempt_at IS NOT NULL AS next, error
FROM arrays, LATERAL outbox.complete_batch('w', ids, tokens, states, latencies_ms => latencies, retry_delays => delays) r;
SELECT message, state FROM t.pending WHERE message LIKE 'n%';
SELECT message, no, state FROM t.ledger WHERE message LIKE 'n%';

-- Why an item is refused: its column error is the SQLSTATE that a single call raises, whose DETAIL says
-- what is so. The item stands among good ones. Everything is undone.
CREATE FUNCTION t.both(id uuid, token uuid, worker text, state text) RETURNS TABLE (batch text, single text) LANGUAGE plpgsql AS $$
DECLARE
	good uuid;
	good_token uuid;
	message text;
	detail text;
BEGIN
	BEGIN
		SELECT e.outbox_id, e.lease_token INTO good, good_token FROM outbox.enqueue_and_claim(worker, 'good', '1', 'q') e;
		SELECT string_agg(concat_ws(' ', r.error, r.attempt_no, r.recorded), ', ') INTO batch
		FROM outbox.complete_batch(worker, ARRAY[id, good], ARRAY[token, good_token], ARRAY[state, 'DISPATCHED']) r;
		RAISE EXCEPTION USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	BEGIN
		SELECT c.recorded::text INTO single FROM outbox.complete(id, token, worker, state) c;
		RAISE EXCEPTION USING ERRCODE = 'UNDO0';
	EXCEPTION
		WHEN SQLSTATE 'UNDO0' THEN
			NULL;
		WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
			single := SQLSTATE || ' ' || t.masked(detail);
	END;
	RETURN NEXT;
END
$$;
CREATE TABLE t.case (name text, event_type text, token uuid, worker text DEFAULT 'w', state text DEFAULT 'DISPATCHED');
SELECT count(*) FROM unnest(ARRAY['cancelled', 'expired', 'repaired', 'taken over', 'held', 'released', 'retried', 'failed', 'ended']) e, outbox.enqueue_and_claim('w', e, '1', 'q');
INSERT INTO t.case (name, event_type, token) SELECT event_type, event_type, t.token(event_type) FROM outbox.messages
WHERE event_type IN ('cancelled', 'expired', 'repaired', 'taken over', 'released', 'ended');
INSERT INTO t.case (name, event_type, token, worker, state) VALUES ('gone', 'no such message', t.token('held'), 'w', 'DISPATCHED'),
	('another token', 'held', t.token('expired'), 'w', 'DISPATCHED'), ('another worker', 'held', t.token('held'), 'thief', 'DISPATCHED'),
	('recorded: retry', 'retried', t.token('retried'), 'w', 'RETRYABLE'), ('recorded: another state', 'retried', t.token('retried'), 'w', 'DISPATCHED'),
	('recorded: failed', 'failed', t.token('failed'), 'w', 'FAILED'), ('recorded: failed, not sent', 'failed', t.token('failed'), 'w', 'DISPATCHED'),
	('recorded: by another worker', 'failed', t.token('failed'), 'thief', 'FAILED');
SELECT outbox.cancel(t.id('cancelled'), 'reason', force => true);
SELECT t.expire(e) FROM unnest(ARRAY['expired', 'repaired', 'taken over', 'ended']) e;
SELECT count(*) FROM outbox.release('w', ARRAY[t.id('released')], ARRAY[t.token('released')]);
SELECT recorded FROM outbox.complete(t.id('retried'), t.token('retried'), 'w', 'RETRYABLE');
SELECT recorded FROM outbox.complete(t.id('failed'), t.token('failed'), 'w', 'FAILED');
-- Two are repaired and taken over by another worker, who ends one; the third is repaired only.
UPDATE outbox.pending SET lease_expires_at = 'tomorrow' WHERE outbox_id = t.id('expired');
SELECT outbox.alter_queue('q', repair_delay => '0');
SELECT count(*) FROM outbox.repair_expired_leases(queues => '{q}');
SELECT t.hold(e) FROM unnest(ARRAY['repaired', 'released', 'retried']) e;
SELECT count(*) FROM outbox.claim('w2', 100, queues => '{q}');
SELECT recorded FROM outbox.complete(t.id('ended'), t.token('ended'), 'w2', 'DISPATCHED');
SELECT t.expire('expired');
SELECT c.name, b.batch, b.single FROM t.case c, t.both(coalesce(t.id(c.event_type), '00000000-0000-7000-8000-000000000001'), c.token, c.worker, c.state) b ORDER BY c.name COLLATE "C";

-- Another worker's name: nothing of it.
SELECT attempt_no, recorded, error FROM outbox.complete_batch('thief', ARRAY[t.id('n4')], ARRAY[t.token('n4')], '{DISPATCHED}');

-- The same item twice in one array: recorded once; the second has lost its lease
-- to the first.
SELECT attempt_no, recorded, error FROM outbox.complete_batch('w',
	ARRAY[t.id('n4'), t.id('n5'), t.id('n4')], ARRAY[t.token('n4'), t.token('n5'), t.token('n4')], '{DISPATCHED, RETRYABLE, FAILED}');
SELECT message, no, state FROM t.ledger WHERE message IN ('n4', 'n5');

-- Nothing to say.
SELECT * FROM outbox.complete_batch('w', '{}', '{}', '{}');
SELECT * FROM outbox.complete_batch('w', '{}', '{}', '{}', '{}', NULL, '{}');

-- B09 (pgflow, River): one row with an extreme attempt number does not fail the others.
SELECT outbox.create_queue('free', max_attempts => NULL);
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue_and_claim('w', 'x' || g, '1', 'free');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (t.id('x2'), 2147483646, 'RETRYABLE');
SELECT attempt_no, recorded, next_attempt_at > clock_timestamp() + interval '1 min' AS scheduled, error
FROM outbox.complete_batch('w', ARRAY[t.id('x1'), t.id('x2'), t.id('x3')], ARRAY[t.token('x1'), t.token('x2'), t.token('x3')], '{DISPATCHED, RETRYABLE, DISPATCHED}');

-- One that has no next number: an error of its own (22003), wherever the next number
-- is asked for, and no number below 1 in the ledger.
SELECT count(*) FROM generate_series(4, 8) g, outbox.enqueue_and_claim('w', 'x' || g, '1', 'free');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) SELECT t.id('x' || g), 2147483647, 'RETRYABLE' FROM generate_series(4, 6) g;
SELECT attempt_no, recorded, error
FROM outbox.complete_batch('w', ARRAY[t.id('x4'), t.id('x7')], ARRAY[t.token('x4'), t.token('x7')], '{DISPATCHED, DISPATCHED}');
SELECT left(x, 5) FROM t.try($$SELECT outbox.complete(t.id('x4'), t.token('x4'), 'w', 'RETRYABLE')$$) x LIMIT 1;
SELECT left(x, 5) FROM t.try($$SELECT outbox.cancel(t.id('x4'), 'r', true)$$) x LIMIT 1;
SELECT t.expire('x5'), t.expire('x6'), t.expire('x8');
SET client_min_messages = error;
SELECT t.masked(outbox_id::text), attempt_no, state FROM outbox.repair_expired_leases(queues => '{free}');
SELECT event_type FROM outbox.claim('w', queues => '{free}');
RESET client_min_messages;
SELECT message, state FROM t.pending WHERE queue = 'free';
SELECT min(attempt_no) FROM outbox.attempts;
SELECT t.lose($$queue = 'free'$$);

-- What fails as a whole.
SELECT * FROM outbox.complete_batch('w', ARRAY[t.id('n6'), t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}');
\echo :SQLSTATE
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.complete_batch(NULL, '{}', '{}', '{}')$$),
	($$SELECT outbox.complete_batch('', '{}', '{}', '{}')$$),
	($$SELECT outbox.complete_batch('w', NULL, '{}', '{}')$$),
	($$SELECT outbox.complete_batch('w', '{}', NULL, '{}')$$),
	($$SELECT outbox.complete_batch('w', '{}', '{}', NULL)$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], '{}', '{DISPATCHED}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', refs => '{}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', response_codes => '{a, b}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', error_codes => '{a, b}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', error_messages => '{a, b}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', latencies_ms => '{1, 2}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', retry_delays => '{1 s, 2 s}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[ARRAY[t.id('n6')]], ARRAY[t.token('n6')], '{DISPATCHED}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[ARRAY[t.token('n6')]], '{DISPATCHED}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{{DISPATCHED}}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DISPATCHED}', refs => '{{a}}')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('n6')], ARRAY[t.token('n6')], '{DONE}')$$)) AS v(s);
SELECT message, state FROM t.pending WHERE message = 'n6';
-- An array that does not begin at 1 is an array.
SELECT attempt_no, recorded, error
FROM outbox.complete_batch('w', ('[5:5]={' || t.id('n6') || '}')::uuid[], ARRAY[t.token('n6')], '[0:0]={DISPATCHED}');

-- A thousand at once, in any order.
SELECT count(*) FROM generate_series(1, 1000) g, outbox.enqueue_and_claim('w', 'bulk', to_jsonb(g)) e;
SELECT count(*) AS rows, bool_and(r.outbox_id = ids[n]) AS in_input_order, count(*) FILTER (WHERE recorded = 'DISPATCHED' AND error IS NULL) AS recorded
FROM (SELECT array_agg(p.outbox_id ORDER BY p.lease_token) AS ids, array_agg(p.lease_token ORDER BY p.lease_token) AS tokens, array_agg('DISPATCHED'::outbox.attempt_state) AS states
	FROM outbox.pending p WHERE p.queue = 'default') a,
	LATERAL ROWS FROM (outbox.complete_batch('w', ids, tokens, states)) WITH ORDINALITY r(outbox_id, attempt_no, recorded, next_attempt_at, error, n);
SELECT count(*) AS pending FROM outbox.pending WHERE queue = 'default';
