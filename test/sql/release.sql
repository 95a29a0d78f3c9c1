--
-- release: given back untried. The lease is cleared, nothing is appended,
-- attempt_count stays; due at now + delay. Beyond max_releases it counts as a try.
-- (Rows that others hold: prepared, race_lease.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q');
SELECT count(*) FROM generate_series(1, 5) g, outbox.enqueue_and_claim('w', 'm' || g, '1', 'q');
UPDATE outbox.pending SET attempt_count = 2 WHERE outbox_id = t.id('m1');

BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT m.event_type, next_attempt_at BETWEEN :'before' AND clock_timestamp() AS due_now, error
FROM outbox.release('w', ARRAY[t.id('m2'), t.id('m1')], ARRAY[t.token('m2'), t.token('m1')]) r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT next_attempt_at BETWEEN :'before'::timestamptz + interval '1 h' AND clock_timestamp() + interval '1 h' AS in_an_hour, error
FROM outbox.release('w', ARRAY[t.id('m3')], ARRAY[t.token('m3')], '1 h');
COMMIT;
SELECT * FROM t.pending;
SELECT m.event_type, claimed_by, claimed_at, lease_token, lease_expires_at FROM outbox.pending JOIN outbox.messages m USING (outbox_id) WHERE event_type < 'm4' ORDER BY 1;
SELECT count(*) AS attempts FROM outbox.attempts;
SELECT event_type, attempt_count FROM outbox.claim('w2', queues => '{q}') ORDER BY 1;

-- Lost: expired, gone, given back before, another token, another worker; NULL
-- elements; the second of a duplicate. In input order.
SELECT t.expire('m5');
SELECT t.id('m4') AS i4, t.token('m4') AS t4, t.id('m5') AS i5, t.token('m5') AS t5 \gset
WITH items(n, id, token) AS (VALUES
	(1, :'i5', :'t5'), (2, :'i4', t.token('m1')::text), (3, '00000000-0000-7000-8000-000000000001', :'t4'), (4, NULL, :'t4'), (5, :'i4', NULL),
	(6, :'i4', :'t4'), (7, :'i4', :'t4')),
arrays AS (SELECT array_agg(id::uuid ORDER BY n) AS ids, array_agg(token::uuid ORDER BY n) AS tokens FROM items)
SELECT row_number() OVER () AS item, r.outbox_id IS NOT DISTINCT FROM ids[row_number() OVER ()] AS id, next_attempt_at IS NOT NULL AS next, error
FROM arrays, LATERAL outbox.release('w', ids, tokens) r;
SELECT error FROM outbox.release('w', ARRAY[:'i4']::uuid[], ARRAY[:'t4']::uuid[]);
SELECT error FROM outbox.release('thief', ARRAY[t.id('m1')], ARRAY[t.token('m1')]);
SELECT message, state, claimed_by FROM t.pending;
SELECT * FROM outbox.release('w', '{}', '{}');

-- In a paused queue too: what is out may be given back.
SELECT outbox.pause('q');
SELECT error FROM outbox.release('w2', ARRAY[t.id('m1')], ARRAY[t.token('m1')]);
SELECT * FROM outbox.claim('w', queues => '{q}');
SELECT outbox.resume('q');

-- What fails as a whole.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.release(NULL, '{}', '{}')$$),
	($$SELECT outbox.release('', '{}', '{}')$$),
	($$SELECT outbox.release('w', NULL, '{}')$$),
	($$SELECT outbox.release('w', '{}', NULL)$$),
	($$SELECT outbox.release('w2', ARRAY[t.id('m2')], '{}')$$),
	($$SELECT outbox.release('w2', ARRAY[ARRAY[t.id('m2')]], ARRAY[t.token('m2')])$$),
	($$SELECT outbox.release('w2', ARRAY[t.id('m2')], ARRAY[t.token('m2')], NULL)$$),
	($$SELECT outbox.release('w2', ARRAY[t.id('m2')], ARRAY[t.token('m2')], '-1 s')$$),
	($$SELECT outbox.release('w2', ARRAY[t.id('m2')], ARRAY[t.token('m2')], '178000000 years')$$)) AS v(s);
SELECT message, state, claimed_by FROM t.pending WHERE message = 'm2';

-- Without a ceiling releases are counted, and no more.
SELECT t.lose();
SELECT created FROM outbox.enqueue('often', '1', 'q', max_attempts => 3);
DO $$
BEGIN
	FOR i IN 1 .. 60 LOOP
		PERFORM FROM outbox.claim('w', queues => '{q}');
		PERFORM FROM outbox.release('w', ARRAY[t.id('often')], ARRAY[t.token('often')]);
	END LOOP;
END
$$;
SELECT message, state, attempts, p.release_count FROM t.pending JOIN outbox.pending p ON p.outbox_id = t.id(message);
SELECT count(*) AS attempts FROM outbox.attempts WHERE outbox_id = t.id('often');
SELECT attempt_count, release_count FROM outbox.operational_status;
SELECT t.lose();

-- With one: max_releases releases, then one that counts as a try and backs off, and so on to the end.
SELECT outbox.create_queue('two', max_attempts => 3, max_releases => 2, backoff_base => '1 h', backoff_jitter => 0);
SELECT created FROM outbox.enqueue('m', '1', 'two');
CREATE FUNCTION t.give_back(type text, times integer DEFAULT 1, delay interval DEFAULT '0')
RETURNS TABLE (due_in interval, error text, release_count integer, attempt_count integer) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM t.due(type);
		PERFORM FROM outbox.claim('w', queues => '{two}');
		SELECT date_trunc('hour', r.next_attempt_at - clock_timestamp() + interval '1 min'), r.error INTO due_in, error
		FROM outbox.release('w', ARRAY[t.id(type)], ARRAY[t.token(type)], delay) r;
		SELECT p.release_count, p.attempt_count INTO release_count, attempt_count FROM outbox.pending p WHERE p.outbox_id = t.id(type);
		RETURN NEXT;
	END LOOP;
END
$$;
SELECT * FROM t.give_back('m', 4);
-- The longer of delay and backoff.
SELECT * FROM t.give_back('m', 2, '5 h');
SELECT * FROM t.give_back('m', 4);
SELECT * FROM t.ledger WHERE message = 'm';
-- A completion, a lost lease, a broken one and another time of delivery leave the count.
SELECT t.lose();
SELECT created FROM outbox.enqueue('kept', '1', 'two', max_attempts => 9);
SELECT * FROM t.give_back('kept');
SELECT count(*) FROM outbox.claim('w', queues => '{two}');
SELECT recorded FROM outbox.complete(t.id('kept'), t.token('kept'), 'w', 'RETRYABLE', retry_delay => '0');
SELECT count(*) FROM outbox.claim('w', queues => '{two}');
SELECT t.expire('kept');
SELECT state FROM outbox.repair_expired_leases();
SELECT t.due('kept');
SELECT count(*) FROM outbox.claim('w', queues => '{two}');
SELECT outbox.break_lease(t.id('kept'), 'hangs');
SELECT count(outbox.reschedule(t.id('kept'), clock_timestamp(), 3));
SELECT release_count, attempt_count FROM outbox.pending;
-- At the ceiling of attempts it ends the message: neither due nor an error.
SELECT created FROM outbox.enqueue('last', '1', 'two', max_attempts => 1);
SELECT * FROM t.give_back('last', 3);
SELECT * FROM t.ledger WHERE message = 'last';
SELECT event_type, error_code, attempts FROM outbox.dead_letters WHERE event_type = 'last';
-- A replay begins at 0.
SELECT outbox.replay(t.id('last')) AS replay \gset
SELECT release_count, attempt_count FROM outbox.pending WHERE outbox_id = :'replay';
-- With 0 each release is a try; one lease twice in a call; what the token says afterwards.
SELECT t.lose();
SELECT outbox.create_queue('none', max_releases => 0, backoff_base => '0');
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue_and_claim('w', 'n' || g, '1', 'none');
SELECT t.id('n1') AS i1, t.token('n1') AS t1, t.id('n2') AS i2, t.token('n2') AS t2 \gset
SELECT next_attempt_at IS NOT NULL AS due, error FROM outbox.release('w', ARRAY[:'i2', :'i1', :'i2', NULL, :'i1']::uuid[], ARRAY[:'t2', :'t1', :'t2', :'t1', :'t2']::uuid[]);
SELECT message, no, state, error_code FROM t.ledger WHERE message IN ('n1', 'n2') ORDER BY 1, 2;
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'i1', :'t1'));
SELECT attempt_no, recorded, error FROM outbox.complete_batch('w', ARRAY[:'i1']::uuid[], ARRAY[:'t1']::uuid[], '{DISPATCHED}');
-- What the ledger refuses is that item's answer.
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) SELECT t.id('n3'), 1, 'DISPATCHED', now();
SELECT count(*) FROM outbox.claim('w', queues => '{none}');
SELECT m.event_type, next_attempt_at IS NOT NULL AS due, error FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending) p, LATERAL outbox.release('w', ids, tokens) r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT t.lose($$outbox_id = t.id('n3')$$);
ALTER TABLE outbox.attempts ADD CONSTRAINT mine CHECK (worker_id <> 'refused');
SELECT count(*) FROM outbox.claim('refused', queues => '{none}');
SELECT outbox.alter_queue('none', max_releases => 1);
UPDATE outbox.pending SET release_count = 1 WHERE outbox_id = t.id('n1');
SELECT m.event_type, next_attempt_at IS NOT NULL AS due, error FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending) p, LATERAL outbox.release('refused', ids, tokens) r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT message, state, attempts, p.release_count FROM t.pending JOIN outbox.pending p ON p.outbox_id = t.id(message) ORDER BY 1;
ALTER TABLE outbox.attempts DROP CONSTRAINT mine;
-- A change of the ceiling holds from the next release on; the count does not overflow.
SELECT outbox.alter_queue('none', max_releases => NULL);
UPDATE outbox.pending SET release_count = 2147483647 WHERE outbox_id = t.id('n1');
SELECT error FROM outbox.release('refused', ARRAY[t.id('n1')], ARRAY[t.token('n1')]);
SELECT release_count FROM outbox.pending WHERE outbox_id = t.id('n1');
SELECT t.try($$UPDATE outbox.pending SET release_count = -1$$);

SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
