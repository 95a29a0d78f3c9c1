--
-- Queues that serve their keys in turn: fair_by and max_in_flight_per_key. Here without the library preloaded, so each
-- claim begins with another key. (With it: test/t/044_fair.pl; sessions that meet: race_key_limit.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('f', fair_by => 'partition_key', repair_delay => '0', backoff_base => '0', max_attempts => 3);
-- What a claim returned, by name; and how many of each key. A name is the queue, the key and a number.
CREATE FUNCTION t.claim(n integer, q text DEFAULT 'f', worker text DEFAULT 'w') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(event_type, ' ' ORDER BY event_type) FROM outbox.claim(worker, n, queues => ARRAY[q])
$$;
CREATE FUNCTION t.keys(n integer, q text DEFAULT 'f') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(k || n, ' ' ORDER BY k) FROM (SELECT coalesce(partition_key, '-') AS k, count(*) AS n FROM outbox.claim('w', n, queues => ARRAY[q]) GROUP BY 1) c
$$;
CREATE FUNCTION t.put(q text, VARIADIC names text[]) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM unnest(names) n, outbox.enqueue(q || n, '1', q, partition_key => left(n, 1))
$$;
CREATE FUNCTION t.give_back(q text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending WHERE queue = q AND claimed_by = 'w') p,
		outbox.release('w', p.ids, p.tokens) WHERE p.ids IS NOT NULL
$$;

-- ---------------------------------------------------------------- turns

SELECT count(*) FROM generate_series(1, 2000) g, outbox.enqueue('fa' || g, '1', 'f', partition_key => 'a');
SELECT t.put('f', 'b1', 'c1', 'c2', 'c3', 'd1');
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue('fn' || g, '1', 'f');
SELECT count(*) FILTER (WHERE fair_key >= 0), count(DISTINCT fair_key), count(DISTINCT fair_key >> 43) FROM outbox.pending;
-- Each key once; then each as much as it has; then the rest of the one that has more. The oldest of a key first.
SELECT t.claim(5);
SELECT t.keys(6);
SELECT t.keys(10);
SELECT t.keys(3000), t.keys(1) AS none;
SELECT t.give_back('f');
-- One at a time: with five keys, five claims that remember no turn meet some of them; all of them are met in the end.
SELECT t.keys(2000), t.keys(8), t.keys(1) AS none;
SELECT count(*) FROM (SELECT outbox.cancel(outbox_id, 'end', force => true) FROM outbox.pending) c;

-- ---------------------------------------------------------------- priorities, what is not due

SELECT count(*) FROM (VALUES ('a1', 0), ('a2', 5), ('a3', 5), ('b1', 5), ('b2', 0), ('c1', 9)) v(n, p), outbox.enqueue(n, '1', 'f', partition_key => left(n, 1), priority => p);
SELECT count(*) FROM generate_series(1, 100) g, outbox.enqueue('s' || g, '1', 'f', partition_key => 's' || g % 7, priority => 5, deliver_at => clock_timestamp() + '1 h');
SELECT count(*) FROM generate_series(1, 100) g, outbox.enqueue('b' || 100 + g, '1', 'f', partition_key => 'b', priority => 5, deliver_at => clock_timestamp() + '1 h');
SELECT t.claim(1), t.claim(2), t.claim(1), t.claim(2), t.claim(1) AS none;
SELECT outbox.reschedule(t.id('s5'), clock_timestamp()) IS NOT NULL AS due, t.claim(9);
-- A retry, a release and a lost lease are due again.
SELECT recorded FROM outbox.complete(t.id('a2'), t.token('a2'), 'w', 'RETRYABLE');
SELECT error IS NULL AS released FROM outbox.release('w', ARRAY[t.id('b2')], ARRAY[t.token('b2')]);
SELECT t.expire('c1'), t.claim(9);
SELECT event_type, attempt_no, a.state FROM outbox.attempts a JOIN outbox.messages USING (outbox_id) WHERE a.state <> 'FAILED' ORDER BY 1;
-- A row without its key is found, too.
UPDATE outbox.pending SET fair_key = NULL WHERE outbox_id = t.id('s6');
SELECT object, problem FROM outbox.check(deep => true) WHERE severity = 'error';
SELECT outbox.reschedule(t.id('s6'), clock_timestamp()) IS NOT NULL AS due, t.claim(9);
SELECT outbox.cancel(t.id('s6'), 'end', force => true);

-- ---------------------------------------------------------------- settings

SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.alter_queue('f', fair_by => '')$$),
	($$SELECT outbox.alter_queue('f', max_in_flight_per_key => 1)$$),
	($$SELECT outbox.alter_queue('f', fair_by => 'routing_key')$$),
	($$SELECT outbox.alter_queue('default', fair_by => 'partition_key')$$),
	($$SELECT outbox.alter_queue('default', fair_by => '')$$)) v(s);
SELECT queue, fair_by, max_in_flight_per_key FROM outbox.queues ORDER BY 1;
SELECT count(*) FROM outbox.enqueue('d1', '1', partition_key => 'd');
SELECT t.try($$SELECT outbox.alter_queue('default', fair_by => 'partition_key')$$);
SELECT fair_key FROM outbox.pending WHERE queue = 'default';

-- ---------------------------------------------------------------- a limit of each key

SELECT outbox.create_queue('l', max_in_flight_per_key => 2, repair_delay => '0', backoff_base => '0', max_attempts => 3);
SELECT t.put('l', 'a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'c2', 'c3');
SELECT count(*) FROM generate_series(1, 4) g, outbox.enqueue('ln' || g, '1', 'l');
SELECT count(*) FILTER (WHERE fair_key < 0), count(DISTINCT fair_key) FROM outbox.pending WHERE queue = 'l';
SELECT t.claim(99, 'l'), t.claim(99, 'l') AS none;
-- A lease that ends, or is given back, makes room for one of its key.
SELECT t.delivered('la1'), t.claim(99, 'l'), t.claim(99, 'l') AS none;
SELECT error IS NULL AS released FROM outbox.release('w', ARRAY[t.id('lc1')], ARRAY[t.token('lc1')], '1 h');
SELECT t.claim(99, 'l'), outbox.cancel(t.id('la2'), 'stop', force => true), t.claim(99, 'l') AS in_its_place;
SELECT outbox_id = t.id('lc1') AS claimed FROM outbox.reschedule(t.id('lc1'), clock_timestamp()), outbox.complete_and_claim('w', ARRAY[t.id('lc2')], ARRAY[t.token('lc2')], '{DISPATCHED}', batch_size => 5, queues => '{l}') WHERE lease_token IS NOT NULL;
-- Within a transaction its own ends make room; a rollback takes all of it back.
SELECT t.put('l', 'a5', 'a6', 'a7');
BEGIN;
SELECT t.delivered('la3'), t.claim(9, 'l');
SAVEPOINT s;
SELECT t.delivered('la4'), t.claim(9, 'l');
ROLLBACK TO s;
SELECT t.claim(9, 'l') AS none;
ROLLBACK;
SELECT t.claim(9, 'l') AS none;
-- An expired lease counts until it is repaired; a claim repairs where no background worker does.
SELECT t.expire('la3'), t.claim(1, 'l');
SELECT t.claim(9, 'l') AS none;
-- Optimistic sending counts, too.
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'le1', '1', 'l', partition_key => 'e');
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'le2', '1', 'l', partition_key => 'e');
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'le3', '1', 'l', partition_key => 'e');
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'ln5', '1', 'l');
-- Another limit acts at once.
SELECT outbox.alter_queue('l', max_in_flight_per_key => 3), t.claim(99, 'l');
SELECT outbox.alter_queue('l', max_in_flight_per_key => 1), t.claim(99, 'l') AS none, t.delivered('le1'), t.claim(99, 'l') AS none;
SELECT t.try($$SELECT outbox.alter_queue('l', max_in_flight_per_key => NULL)$$);
-- Work that cannot be claimed is none.
SELECT count(*) FROM outbox.pending WHERE queue = 'l' AND claimed_by IS NULL AND next_attempt_at <= now();
CALL outbox.wait_for_work('50 ms', '{l}');

-- Beside a limit of the queue: the lesser one decides.
SELECT outbox.create_queue('b', max_in_flight => 3, max_in_flight_per_key => 2);
SELECT t.put('b', 'a1', 'a2', 'a3', 'b1', 'b2', 'c1');
SELECT t.keys(2, 'b') ~ '^[abc]1 [abc]1$' AS two_keys, length(t.claim(9, 'b')) AS one_message, t.claim(9, 'b') AS none;

-- ---------------------------------------------------------------- ordered queues

SELECT outbox.create_queue('o', ordering => 'fifo', max_in_flight_per_key => 3, backoff_base => '0');
SELECT t.put('o', 'a1', 'a2', 'a3', 'a4', 'a5', 'b1', 'b2', 'b3', 'b4');
SELECT t.claim(2, 'o'), t.claim(9, 'o') AS none;
SELECT t.give_back('o'), t.claim(99, 'o'), t.claim(99, 'o') AS none;
SELECT t.delivered('oa1'), t.claim(99, 'o') AS none;
SELECT t.delivered('oa2', 'oa3', 'ob1', 'ob2', 'ob3'), t.claim(99, 'o');
SELECT outbox.create_queue('p', ordering => 'fifo', fair_by => 'partition_key');
SELECT t.put('p', 'a1', 'a2', 'a3', 'a4', 'a5', 'b1');
SELECT t.claim(2, 'p'), t.claim(9, 'p') AS none;
SELECT t.give_back('p'), t.claim(9, 'p');

-- ---------------------------------------------------------------- replay, what was lost

SELECT outbox.create_queue('r', max_in_flight_per_key => 1);
SELECT t.put('r', 'x1', 'x2', 'y1', 'y2');
SELECT outbox.cancel(t.id('rx1'), 'stop'), outbox.replay(t.id('rx1')) IS NOT NULL AS replayed;
SELECT count(*), count(fair_key), count(DISTINCT fair_key) FROM outbox.pending WHERE queue = 'r';
CREATE TABLE t.keys_before AS SELECT outbox_id, fair_key FROM outbox.pending WHERE queue IN ('p', 'r', 'default', 'l');
SET session_replication_role = replica;
ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed;
DELETE FROM outbox.pending WHERE queue IN ('p', 'r', 'default', 'l');
ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
RESET session_replication_role;
SELECT outbox.restore_pending() = count(*) AS restored FROM t.keys_before;
SELECT count(*) AS same_key FROM t.keys_before k JOIN outbox.pending p USING (outbox_id) WHERE k.fair_key IS NOT DISTINCT FROM p.fair_key HAVING count(*) = (SELECT count(*) FROM t.keys_before);
SELECT t.claim(9, 'r') ~ '^rx. ry.$' AS one_each;

SELECT object, problem FROM outbox.check(deep => true) WHERE severity = 'error';

-- A lost lease that ends when it is met does not end the search for a key, behind full ones and many with nothing due.
SELECT outbox.create_queue('v', max_in_flight_per_key => 1, max_attempts => 1);
SELECT t.put('v', 'x1'), t.claim(1, 'v');
SELECT count(*) FROM generate_series(1, 101) g, outbox.enqueue('va' || g, '1', 'v', partition_key => 'a');
SELECT t.claim(1, 'v'), t.put('v', 'k1');
SELECT count(*) FROM outbox.enqueue_batch('v', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, 'partition_key', i::text, 'deliver_at', now() + interval '1 h')) FROM generate_series(1, 5000) i));
UPDATE outbox.pending SET lease_expires_at = created_at WHERE outbox_id = t.id('vx1');
SELECT t.claim(2, 'v');

-- More full keys than the server has locks for.
SELECT outbox.create_queue('many', max_in_flight_per_key => 1);
SELECT count(*) FROM outbox.enqueue_batch('many', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, 'partition_key', (i % 12000)::text)) FROM generate_series(1, 24000) i));
SELECT count(*), count(DISTINCT partition_key) FROM outbox.claim('w', 24000, queues => '{many}');
SELECT count(*) FROM outbox.claim('w', 1, queues => '{many}');
