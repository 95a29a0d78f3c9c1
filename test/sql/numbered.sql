--
-- ordering = 'numbered': 1, 2, 3 … per (queue, partition_key), without gaps, in
-- commit order, for ever. (Producers that wait for each other: the isolation specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('n', ordering => 'numbered'), outbox.create_queue('m', ordering => 'numbered');

-- Each key counts for itself, in each queue; 'default' does not count.
SELECT v.q, v.k, e.sequence_id FROM (VALUES (1, 'n', 'a'), (2, 'n', 'a'), (3, 'n', 'b'), (4, 'm', 'a'), (5, 'n', 'a'),
	(6, 'default', 'a'), (7, 'n', 'A'), (8, 'n', 'a '), (9, 'n', ' ')) AS v(i, q, k)
CROSS JOIN LATERAL outbox.enqueue(v.q || i, '1', v.q, partition_key => v.k) AS e ORDER BY v.i;
SELECT * FROM outbox.sequences ORDER BY queue, partition_key;
SELECT event_type, m.sequence_id, p.sequence_id = m.sequence_id AS pending_agrees
FROM outbox.messages m JOIN outbox.pending p USING (outbox_id) ORDER BY outbox_id;

-- No key, no number.
SELECT sequence_id, created FROM outbox.enqueue('no key', '1', 'n');
SELECT count(*) FROM outbox.sequences WHERE partition_key IS NULL;

-- A rollback uses no number up, nor does a savepoint's, nor an error.
BEGIN;
SELECT sequence_id FROM outbox.enqueue('rolled back', '1', 'n', partition_key => 'a');
ROLLBACK;
BEGIN;
SELECT sequence_id FROM outbox.enqueue('4', '1', 'n', partition_key => 'a');
SAVEPOINT s;
SELECT sequence_id FROM outbox.enqueue('rolled back', '1', 'n', partition_key => 'a');
SELECT sequence_id FROM outbox.enqueue('rolled back', '1', 'n', partition_key => 'new');
ROLLBACK TO s;
SELECT sequence_id FROM outbox.enqueue('5', '1', 'n', partition_key => 'a');
COMMIT;
SELECT t.try($$SELECT outbox.enqueue('6', '1', 'n', partition_key => 'a'), 1/0$$);
SELECT sequence_id FROM outbox.enqueue('6', '1', 'n', partition_key => 'a');
SELECT sequence_id FROM outbox.enqueue('new', '1', 'n', partition_key => 'new');

-- A batch takes as many as it has, in input order.
SELECT ordinality, sequence_id FROM outbox.enqueue_batch('n', (
	SELECT jsonb_agg(jsonb_build_object('event_type', 'batch ' || g, 'payload', g, 'partition_key', CASE g % 2 WHEN 0 THEN 'a' ELSE 'b' END))
	FROM generate_series(1, 6) g));

-- Nothing that becomes of a message gives its number back: completion, failure,
-- cancellation, a replay (a new message, the next number), the upkeep, and the
-- queue's own end.
SELECT outbox.cancel(t.id('6'), 'no longer wanted');
SELECT count(*) FROM outbox.claim('w', 100, queues => '{n}') AS c,
	LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
SELECT sequence_id FROM outbox.enqueue('after', '1', 'n', partition_key => 'a');
SELECT outbox.replay(t.id('6')) AS replay \gset
SELECT sequence_id, partition_key, event_type FROM outbox.messages WHERE outbox_id = :'replay';
CREATE TABLE t.before AS SELECT * FROM outbox.sequences;
SELECT count(*) >= 0 AS maintained FROM outbox.maintain();
SELECT * FROM outbox.sequences EXCEPT SELECT * FROM t.before;
SELECT sequence_id FROM outbox.enqueue('after upkeep', '1', 'n', partition_key => 'a');
SELECT count(*) AS rows_of_a_key FROM outbox.key_numbers WHERE queue = 'n' AND partition_key = 'a' AND upto <
	(SELECT next_sequence_id - 2 FROM outbox.sequences WHERE queue = 'n' AND partition_key = 'a');
SELECT outbox.create_queue('gone', ordering => 'numbered');
SELECT sequence_id FROM outbox.enqueue('gone', '1', 'gone', partition_key => 'a');
SELECT outbox.cancel(t.id('gone'), 'end');
SELECT outbox.drop_queue('gone');
SELECT outbox.create_queue('gone', ordering => 'numbered');
SELECT sequence_id FROM outbox.enqueue('back', '1', 'gone', partition_key => 'a');

-- No gap and no double anywhere.
SELECT queue, partition_key, count(*), min(sequence_id), max(sequence_id), count(DISTINCT sequence_id)
FROM outbox.messages WHERE sequence_id IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2;

-- Two pending rows never share (queue, partition_key, sequence_id), whoever writes.
SELECT t.try($$INSERT INTO outbox.pending (outbox_id, queue, partition_key, sequence_id)
	SELECT '00000000-0000-7000-8000-000000000000', queue, partition_key, sequence_id FROM outbox.pending WHERE outbox_id = t.id('back')$$);

-- A queue that begins to count.
SELECT outbox.create_queue('later');
SELECT sequence_id FROM outbox.enqueue('uncounted', '1', 'later', partition_key => 'a');
SELECT outbox.alter_queue('later', ordering => 'numbered');
SELECT sequence_id FROM outbox.enqueue('counted', '1', 'later', partition_key => 'a');

-- The last number there is: an error, and the key stays where it is.
SELECT sequence_id FROM outbox.enqueue('end', '1', 'n', partition_key => 'end');
UPDATE outbox.key_numbers SET upto = 9223372036854775805 WHERE queue = 'n' AND partition_key = 'end';
SELECT t.try($$SELECT outbox.enqueue_batch('n', (SELECT jsonb_agg(jsonb_build_object('event_type', 'end', 'payload', g, 'partition_key', 'end')) FROM generate_series(1, 3) g))$$);
SELECT sequence_id FROM generate_series(1, 2) g, LATERAL outbox.enqueue('end', to_jsonb(g), 'n', partition_key => 'end') ORDER BY 1;
SELECT t.try(s) FROM (VALUES ($$SELECT outbox.enqueue('end', '1', 'n', partition_key => 'end')$$), ($$SELECT outbox.take_number('n', 'end')$$)) v(s);
SELECT next_sequence_id FROM outbox.sequences WHERE partition_key = 'end';

-- A key of any length is one key.
SELECT string_agg(md5(g::text), '' ORDER BY g) AS long FROM generate_series(1, 640) g \gset
SELECT i, length(k), e.sequence_id FROM (VALUES (1, :'long'), (2, :'long'), (3, :'long' || 'x'), (4, :'long')) v(i, k),
	LATERAL outbox.enqueue('long', to_jsonb(i), 'n', partition_key => k) e ORDER BY i;
