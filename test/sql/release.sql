--
-- release: given back untried. The lease is cleared, nothing is appended,
-- attempt_count stays; due at now + delay. (Rows that others hold: prepared.)
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
