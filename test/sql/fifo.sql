--
-- ordering = 'fifo': within (queue, partition_key) a message is leased only when every earlier
-- one has ended, or together with it. (Sessions that meet: the isolation specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('f', ordering => 'fifo', max_attempts => 9, backoff_base => '0', repair_delay => '0');

CREATE FUNCTION t.put(VARIADIC names text[]) RETURNS void LANGUAGE sql AS $$
	-- the first letter is the key
	SELECT outbox.enqueue(n, '1', 'f', partition_key => nullif(left(n, 1), '-')) FROM unnest(names) WITH ORDINALITY u(n, i) ORDER BY i
$$;
CREATE FUNCTION t.put_later(name text) RETURNS void LANGUAGE sql AS $$
	SELECT outbox.enqueue(name, '1', 'f', partition_key => left(name, 1), deliver_at => now() + interval '1 h')
$$;
CREATE FUNCTION t.claim(n integer DEFAULT 1, worker text DEFAULT 'w') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(event_type, ' ') FROM outbox.claim(worker, n, queues => '{f}')
$$;
CREATE FUNCTION t.end(name text, state outbox.attempt_state DEFAULT 'DISPATCHED', worker text DEFAULT 'w') RETURNS text LANGUAGE sql AS $$
	SELECT recorded::text FROM outbox.complete(t.id(name), t.token(name), worker, state, retry_delay => CASE state WHEN 'RETRYABLE' THEN interval '0' END)
$$;
-- Several at once, in this order.
CREATE FUNCTION t.end_all(names text[], states outbox.attempt_state[] DEFAULT NULL, OUT answers text) LANGUAGE sql AS $$
	SELECT string_agg(n || ' ' || coalesce(b.error, b.recorded::text), ', ' ORDER BY i)
	FROM (
		SELECT array_agg(t.id(n) ORDER BY i) AS ids, array_agg(coalesce(t.token(n), outbox_id) ORDER BY i) AS tokens
		FROM unnest(names) WITH ORDINALITY u(n, i), LATERAL (SELECT t.id(n)) x(outbox_id)) a,
	LATERAL outbox.complete_batch('w', a.ids, a.tokens, coalesce(states, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(names)]))) WITH ORDINALITY b,
	LATERAL (SELECT names[b.ordinality] AS n, b.ordinality AS i) o
$$;
CREATE VIEW t.waiting AS
	SELECT event_type, p.sequence_id, held_back, claimed_by FROM outbox.pending p JOIN outbox.messages USING (outbox_id)
	WHERE p.queue = 'f' ORDER BY p.partition_key, p.sequence_id;
CREATE VIEW t.blocked AS
	SELECT queue, partition_key, m.event_type, b.sequence_id, reason, since <= now() + interval '1 h' AS since, behind
	FROM outbox.blocked_keys b LEFT JOIN outbox.messages m USING (outbox_id, queue, partition_key) ORDER BY 1, 2;

-- One of each key, and those without a key; the next when it has ended.
SELECT t.put('a1', 'a2', 'b1', '-1', '-2', 'a3', 'b2');
SELECT * FROM t.waiting;
SELECT t.claim(3);
SELECT t.claim(1) AS rest;
SELECT t.claim(1) AS none;
SELECT * FROM t.blocked;
SELECT state, count(*) FROM outbox.operational_status GROUP BY 1 ORDER BY 1;
SELECT pending_count, due_unleased_count, leased_count, scheduled_count, waiting_count FROM outbox.status WHERE queue = 'f';
SELECT t.end('a1'), t.end('-1');
SELECT * FROM t.waiting;
SELECT t.claim(1);
SELECT t.end('a2'), t.end('b1'), t.end('-2');
SELECT t.claim(9, 'v') AS both_heads;
SELECT t.end('a3', worker => 'v'), t.end('b2', worker => 'v'), (SELECT count(*) FROM outbox.pending), (SELECT count(*) FROM outbox.key_marks);

-- A key that was empty begins again.
SELECT t.put('a4'), t.claim(), t.end('a4');

-- A retry holds its key back, and no other.
SELECT t.put('a5', 'a6', 'b3'), t.claim(2);
SELECT t.end('a5', 'RETRYABLE'), t.hold('a5'), t.end('b3');
SELECT t.claim(9) AS none;
SELECT * FROM t.blocked;
SELECT t.due('a5'), t.claim() AS again, t.end('a5'), t.claim(), t.end('a6');

-- A run: with nothing else to claim, what is behind the head comes with it, in order.
SELECT t.put('a7', 'a8', 'b4', 'a9', 'b5');
SELECT t.claim(4);
SELECT * FROM t.waiting;
-- Not before those in front of it.
SELECT t.try($$SELECT t.end('a8')$$);
SELECT t.end_all('{a8,b5}');
-- In any order within a batch.
SELECT t.end_all('{a8,b4,a7}');
SELECT * FROM t.waiting;
SELECT t.claim(9), t.end_all('{b5,a9}');
SELECT * FROM t.waiting;

-- A part of a run: what follows is the head, still leased. What is skipped holds back those behind it.
SELECT t.put('a10', 'a11', 'a12', 'a13', 'a14'), t.claim(4);
SELECT t.end_all('{a10,a13,a11}');
SELECT * FROM t.waiting;
SELECT t.end('a12'), t.end('a13'), t.claim(), t.end('a14');

-- A retry within a run, or a lost lease, gives the rest back untried.
SELECT t.put('a15', 'a16', 'a17'), t.claim(3);
SELECT t.end_all('{a15,a16,a17}', '{DISPATCHED,RETRYABLE,DISPATCHED}');
SELECT * FROM t.waiting;
SELECT t.claim(3), t.expire('a16'), t.expire('a17');
SELECT outbox_id = t.id('a16') AS repaired, attempt_no, state FROM outbox.repair_expired_leases();
SELECT * FROM t.waiting;
SELECT attempt_count FROM outbox.pending WHERE outbox_id = t.id('a17');
SELECT t.claim(2), t.expire('a16'), t.claim(2, 'v') AS found_by_a_claim;
SELECT t.end('a16', worker => 'v'), t.end('a17', worker => 'v');
SELECT event_type, attempt_no, state FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type IN ('a16', 'a17') ORDER BY 1, 2;

-- So does a lease that is lost within a run: broken, expired, or taken over by a claim.
SELECT t.put('z1', 'z2', 'z3', 'z4'), t.claim(4);
SELECT outbox.break_lease(t.id('z2'), 'stuck');
SELECT * FROM t.waiting;
SELECT t.end('z1'), t.claim(4), t.expire('z3');
SELECT count(*) FROM outbox.repair_expired_leases();
SELECT * FROM t.waiting;
SELECT t.end('z2'), t.claim(4), t.end('z3'), t.end('z4');
SELECT t.put('z5', 'z6', 'z7'), t.claim(4);
SELECT t.expire('z5'), t.expire('z6'), t.claim(4, 'v');
SELECT t.end('z5', worker => 'v'), t.end('z6', worker => 'v'), t.end('z7', worker => 'v');

-- A release gives back what it names; renewals go on.
CREATE FUNCTION t.release(VARIADIC names text[]) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(coalesce(error, 'ok'), ' ') FROM (SELECT array_agg(t.id(n)) AS ids, array_agg(t.token(n)) AS tokens FROM unnest(names) n) a, outbox.release('w', ids, tokens)
$$;
SELECT t.put('a18', 'a19'), t.claim(2);
SELECT error FROM outbox.renew('w', ARRAY[t.id('a18'), t.id('a19')], ARRAY[t.token('a18'), t.token('a19')]);
SELECT error FROM outbox.release('w', ARRAY[t.id('a18'), t.id('a19')], ARRAY[t.token('a18'), t.token('a19')]);
SELECT * FROM t.waiting;
SELECT t.claim(2), outbox.break_lease(t.id('a18'), 'stuck');
SELECT * FROM t.waiting;
SELECT t.claim(2), t.end_all('{a18,a19}');

-- Of a key no two claims hold messages: what is given back gives back what is leased behind it.
SELECT t.put('k1', 'k2', 'k3', 'k4'), t.claim(4), t.release('k2');
SELECT * FROM t.waiting;
SELECT t.claim(4, 'v') AS none, t.release('k1'), t.claim(4, 'v');
SELECT t.end('k1', worker => 'v'), t.expire('k3'), count(*) FROM outbox.repair_expired_leases();
SELECT * FROM t.waiting;
SELECT t.end('k2', worker => 'v'), t.claim(4), outbox.break_lease(t.id('k4'), 'stuck'), t.expire('k3'), t.claim(4);
SELECT t.release('k4', 'k3');
SELECT event_type, release_count FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type LIKE 'k%' ORDER BY 1;
SELECT t.claim(4), t.end_all('{k3,k4}');

-- Cancelled: the head, what is behind, and the last one, which a later message must not take for the end of the key.
SELECT t.put('a20', 'a21', 'a22', 'a23');
SELECT outbox.cancel(t.id('a21'), 'no longer'), outbox.cancel(t.id('a23'), 'no longer');
SELECT t.put('a24');
SELECT * FROM t.waiting;
SELECT t.claim(9) AS run, outbox.cancel(t.id('a20'), 'no longer', force => true);
SELECT * FROM t.waiting;
SELECT t.end_all('{a22,a24}');
SELECT t.put('a25'), t.claim(), t.end('a25');
SELECT count(*) FROM outbox.maintain() WHERE action LIKE '%later%';
SELECT kind, count(*) FROM outbox.key_marks GROUP BY 1;

-- A dead head lets its key go on, or blocks it until an operator decides.
SELECT t.put('a26', 'a27'), t.claim(), t.end('a26', 'FAILED'), t.claim(), t.end('a27');
SELECT outbox.alter_queue('f', on_dead_head => 'block');
SELECT t.put('a28', 'a29', 'b6'), t.claim(9);
SELECT t.end('a28', 'FAILED'), t.end('b6', 'FAILED');
SELECT t.put('a30', 'b7'), t.claim(9) AS none;
SELECT * FROM t.blocked;
SELECT * FROM t.waiting;
SELECT t.try($$SELECT outbox.unblock('f', 'c')$$), t.try($$SELECT outbox.unblock('x', 'a')$$), t.try($$SELECT outbox.unblock('f', '')$$);
SELECT outbox.unblock('f', 'b') = t.id('b6') AS unblocked;
SELECT t.try($$SELECT outbox.unblock('f', 'b')$$);
-- Its replay takes its place.
SELECT outbox.replay(t.id('a28')) AS replay \gset
SELECT sequence_id, replay_of = t.id('a28') AS replays, held_back FROM outbox.pending JOIN outbox.messages USING (outbox_id, sequence_id) WHERE outbox_id = :'replay';
SELECT * FROM t.blocked;
SELECT string_agg(event_type, ' ') FROM outbox.claim('w', 9, queues => '{f}');
SELECT recorded FROM outbox.complete(:'replay', (SELECT lease_token FROM outbox.pending WHERE outbox_id = :'replay'), 'w', 'DISPATCHED');
SELECT t.end_all('{a29,a30,b7}');
SELECT count(*) FROM outbox.pending;
-- Also if nothing was behind it: what is enqueued then waits for the replay.
SELECT t.put('j1'), t.claim(), t.end('j1', 'FAILED'), outbox.replay(t.id('j1')) AS replay \gset last_
SELECT t.put('j2', 'j3'), (SELECT count(*) FROM outbox.maintain() WHERE action LIKE '%later%') AS left;
SELECT event_type, sequence_id, held_back FROM t.waiting;
SELECT string_agg(event_type || ' ' || sequence_id, ', ') FROM outbox.claim('w', 1, queues => '{f}');
SELECT recorded FROM outbox.complete(:'last_replay', (SELECT lease_token FROM outbox.pending WHERE outbox_id = :'last_replay'), 'w', 'DISPATCHED');
SELECT t.claim(9), t.end_all('{j2,j3}');
-- The last attempt blocks as well, and a cancellation does not.
SELECT t.put('c1', 'c2', 'c3'), t.claim(), t.expire('c1') FROM outbox.alter_queue('f', max_attempts => 1);
SELECT state FROM outbox.repair_expired_leases();
SELECT * FROM t.blocked;
SELECT outbox.cancel(t.id('c2'), 'no longer'), outbox.unblock('f', 'c') IS NOT NULL AS unblocked;
SELECT outbox.cancel(t.id('c3'), 'no longer');
SELECT * FROM t.blocked;
SELECT t.put('c4'), t.claim(), t.end('c4');
-- A message that is held back does not end before the key has come to it.
SELECT t.put('l1', 'l2', 'l3'), t.claim(3), outbox.break_lease(t.id('l2'), 'stuck');
SELECT * FROM t.waiting;
SELECT t.end('l1'), t.claim(3) AS none;
SELECT * FROM t.blocked;
SELECT t.claim(3) FROM outbox.unblock('f', 'l');
SELECT t.end('l3');
-- What was leased behind a head whose last attempt is lost.
SELECT outbox.alter_queue('f', on_dead_head => 'continue');
SELECT t.put('o1', 'o2', 'o3'), t.claim(3), t.expire('o1'), t.expire('o2'), t.expire('o3');
SELECT event_type, state FROM outbox.repair_expired_leases() JOIN outbox.messages USING (outbox_id);
SELECT * FROM t.waiting;
SELECT t.claim(9), t.end_all('{o2,o3}');
SELECT outbox.alter_queue('f', max_attempts => 9);

-- Optimistic sending: only at the head of a key.
SELECT event_type, sequence_id, lease_token IS NOT NULL AS leased
FROM (VALUES (1, 'd1'), (2, 'd2')) v(i, event_type), LATERAL outbox.enqueue_and_claim('w', v.event_type, '1', 'f', partition_key => 'd') ORDER BY i;
SELECT t.end('d1'), t.claim(), t.end('d2');

-- One transaction that enqueues, claims and completes; savepoints.
BEGIN;
SELECT t.put('e1', 'e2'), t.claim(), t.end('e1');
SAVEPOINT s;
SELECT t.claim(), t.end('e2');
ROLLBACK TO s;
SELECT t.put('e3');
SELECT * FROM t.waiting;
COMMIT;
SELECT t.claim(9), t.end_all('{e2,e3}');

-- Scheduled: the key waits for its head.
SELECT t.put_later('g1'), t.put('g2'), t.claim() AS none;
SELECT * FROM t.blocked;
SELECT t.due('g1'), t.claim(9), t.end_all('{g1,g2}');
SELECT t.put('g3'), t.put_later('g4'), t.put('g5'), t.claim(9) AS up_to_it;
SELECT t.end('g3'), t.claim(9) AS none, t.due('g4'), t.claim(9), t.end_all('{g4,g5}');

-- A number that no message has stands in no one's way.
SELECT t.put('h1'), outbox.take_number('f', 'h'), t.put('h2'), t.claim(1);
SELECT * FROM t.waiting;
SELECT t.end('h1'), t.claim(), t.end('h2');

-- The ordering of a queue changes only while it is empty.
SELECT t.put('i1', 'i2');
SELECT t.try($$SELECT outbox.alter_queue('f', ordering => 'numbered')$$);
SELECT outbox.alter_queue('f', lease => '1 min', ordering => 'fifo');
SELECT created FROM outbox.enqueue('n', '1', 'default');
SELECT t.try($$SELECT outbox.alter_queue('default', ordering => 'fifo')$$);
SELECT outbox.alter_queue('default', ordering => 'numbered');
SELECT t.try($$SELECT outbox.drop_queue('f')$$);
SELECT t.claim(9), t.end_all('{i1,i2}');
SELECT outbox.alter_queue('f', ordering => 'numbered'), t.put('i3', 'i4');
SELECT * FROM t.waiting;
SELECT t.claim(2), t.end_all('{i4}'), t.end('i3'), outbox.alter_queue('f', ordering => 'fifo'), t.put('i5', 'i6');
SELECT * FROM t.waiting;

-- What was lost comes back in its place.
SELECT t.lose($$queue = 'f'$$), outbox.restore_pending();
SELECT * FROM t.waiting;
SELECT t.claim(9), t.end_all('{i5,i6}');

-- check(deep => true) finds a key that no one lets go on, and one with two heads. Both are made by hand.
SELECT t.put('x1', 'x2', 'x3', 'y1', 'y2');
CREATE VIEW t.deep AS SELECT severity, object, problem FROM outbox.check(deep => true) WHERE object = 'queue f' ORDER BY 3;
SELECT * FROM t.deep;
UPDATE outbox.pending SET held_back = true WHERE outbox_id = t.id('x1');
UPDATE outbox.pending SET held_back = false WHERE outbox_id = t.id('y2');
SELECT * FROM t.deep;
SELECT count(*) FROM outbox.check() WHERE object = 'queue f';
UPDATE outbox.pending SET held_back = true WHERE outbox_id = t.id('y1');
SELECT * FROM t.deep;
UPDATE outbox.pending SET held_back = outbox_id = t.id('y2') WHERE partition_key = 'y';
SELECT outbox.cancel(t.id('x1'), 'no longer'), (SELECT count(*) FROM outbox.maintain() WHERE action LIKE '%later%') AS left;
SELECT * FROM t.deep;
SELECT t.claim(9), t.end_all('{x2,x3,y1,y2}');
SELECT (SELECT count(*) FROM outbox.pending WHERE queue = 'f'), outbox.drop_queue('f'), (SELECT count(*) FROM outbox.key_marks);

-- A claim lets a key go on, however many others have messages that ended out of turn.
SELECT outbox.create_queue('b', ordering => 'fifo');
SELECT count(*) FROM generate_series(1, 400) i, LATERAL outbox.enqueue('head', '1', 'b', partition_key => 'k' || i, deliver_at => now() + interval '1 h');
SELECT count(*) FROM generate_series(1, 400) i, LATERAL outbox.enqueue('behind', '1', 'b', partition_key => 'k' || i);
SELECT outbox.enqueue('m', '1', 'b', partition_key => 'j1') IS NOT NULL AS enqueued FROM generate_series(1, 2);
SELECT count(outbox.cancel(outbox_id, 'no longer')) FROM outbox.pending WHERE queue = 'b' AND held_back;
SELECT c.recorded FROM outbox.claim('w', 1, queues => '{b}') l, outbox.complete(l.outbox_id, l.lease_token, 'w', 'DISPATCHED') c;
SELECT count(*) FROM outbox.enqueue('m', '1', 'b', partition_key => 'j1');
SELECT partition_key, sequence_id FROM outbox.claim('w', 1, queues => '{b}');
SELECT count(*) FROM outbox.pending p WHERE queue = 'b' AND outbox.cancel(outbox_id, 'no longer', force => true) > 0;
SELECT count(*) FROM outbox.maintain() WHERE action LIKE '%later%';
SELECT count(*) FROM outbox.key_marks;
SELECT * FROM outbox.check(deep => true) WHERE severity = 'error';
