--
-- renew: the later of the expiry and now + lease, for leases that are held; an
-- answer for each item. (Rows that others hold: prepared and the isolation specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q', lease => '10 min');
SELECT count(*) FROM generate_series(1, 6) g, outbox.enqueue_and_claim('w', 'm' || g, '1', 'q');

-- Longer; by the queue's own lease; never shorter. Nothing else of the row changes.
CREATE TABLE t.before AS SELECT * FROM outbox.pending;
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT m.event_type, lease_expires_at BETWEEN :'before'::timestamptz + interval '1 h' AND clock_timestamp() + interval '1 h' AS hour, error
FROM outbox.renew('w', ARRAY[t.id('m2'), t.id('m1')], ARRAY[t.token('m2'), t.token('m1')], '1 h') r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT lease_expires_at BETWEEN :'before'::timestamptz + interval '10 min' AND clock_timestamp() + interval '10 min' AS ten_minutes, error
FROM outbox.renew('w', ARRAY[t.id('m3')], ARRAY[t.token('m3')]);
SELECT r.lease_expires_at = b.lease_expires_at AS as_it_was, error
FROM t.before b, outbox.renew('w', ARRAY[t.id('m4')], ARRAY[t.token('m4')], '1 s') r WHERE b.outbox_id = t.id('m4');
COMMIT;
SELECT m.event_type, p.lease_expires_at - b.lease_expires_at > '0' AS later,
	(p.queue, p.priority, p.partition_key, p.sequence_id, p.attempt_count, p.max_attempts, p.next_attempt_at, p.created_at, p.claimed_by, p.claimed_at, p.lease_token)
	IS NOT DISTINCT FROM
	(b.queue, b.priority, b.partition_key, b.sequence_id, b.attempt_count, b.max_attempts, b.next_attempt_at, b.created_at, b.claimed_by, b.claimed_at, b.lease_token) AS otherwise_the_same
FROM outbox.pending p JOIN t.before b USING (outbox_id) JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT count(*) AS attempts FROM outbox.attempts;

-- Lost: expired, gone, another token, another worker; NULL elements; a duplicate is
-- no harm. In input order.
SELECT t.expire('m5');
SELECT outbox_id AS done, lease_token AS done_token FROM outbox.enqueue_and_claim('w', 'done', '1', 'q') \gset
SELECT recorded FROM outbox.complete(:'done', :'done_token', 'w', 'DISPATCHED');
WITH items(n, id, token) AS (VALUES
	(1, t.id('m1'), t.token('m1')), (2, t.id('m5'), t.token('m5')), (3, :'done', :'done_token'), (4, t.id('m2'), t.token('m1')),
	(5, '00000000-0000-7000-8000-000000000001', t.token('m1')), (6, NULL, t.token('m1')), (7, t.id('m3'), NULL), (8, t.id('m1'), t.token('m1'))),
arrays AS (SELECT array_agg(id::uuid ORDER BY n) AS ids, array_agg(token::uuid ORDER BY n) AS tokens FROM items)
SELECT row_number() OVER () AS item, r.outbox_id IS NOT DISTINCT FROM ids[row_number() OVER ()] AS id,
	lease_expires_at > clock_timestamp() + interval '2 h' AS renewed, error
FROM arrays, LATERAL outbox.renew('w', ids, tokens, '3 h') r;
SELECT lease_expires_at, error FROM outbox.renew('thief', ARRAY[t.id('m1')], ARRAY[t.token('m1')]);
SELECT message, state, claimed_by FROM t.pending;
SELECT * FROM outbox.renew('w', '{}', '{}');

-- What fails as a whole.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.renew(NULL, '{}', '{}')$$),
	($$SELECT outbox.renew('', '{}', '{}')$$),
	($$SELECT outbox.renew('w', NULL, '{}')$$),
	($$SELECT outbox.renew('w', '{}', NULL)$$),
	($$SELECT outbox.renew('w', ARRAY[t.id('m1')], '{}')$$),
	($$SELECT outbox.renew('w', ARRAY[ARRAY[t.id('m1')]], ARRAY[t.token('m1')])$$),
	($$SELECT outbox.renew('w', ARRAY[t.id('m1')], ARRAY[t.token('m1')], '0')$$),
	($$SELECT outbox.renew('w', ARRAY[t.id('m1')], ARRAY[t.token('m1')], '-1 s')$$),
	($$SELECT outbox.renew('w', ARRAY[t.id('m1')], ARRAY[t.token('m1')], '178000000 years')$$)) AS v(s);
