--
-- Limits of a queue: how many messages may be leased at a time, and in a time. Here without the library preloaded: a
-- claim counts the leases in the table, and keeps what is spent of the rate in a table. (With it: test/t/041_limits.pl;
-- sessions that meet: race_limit.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('l', max_in_flight => 3, repair_delay => '0', backoff_base => '0', max_attempts => 3);
CREATE FUNCTION t.claim(n integer, worker text DEFAULT 'w', VARIADIC queues text[] DEFAULT '{l}') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(event_type, ' ') FROM outbox.claim(worker, n, queues => queues)
$$;

SELECT count(*) FROM generate_series(1, 9) g, outbox.enqueue('m' || g, '1', 'l');
SELECT created FROM outbox.enqueue('other', '1');

-- Fewer than asked for, then none; each that ends makes room for one. Other queues have their own limit, or none.
SELECT t.claim(5), t.claim(5, 'v') AS none, t.claim(5, 'v', 'l', 'default') AS other;
SELECT t.delivered('m1'), t.claim(5), t.claim(1) AS none;
SELECT error IS NULL AS released FROM outbox.release('w', ARRAY[t.id('m2')], ARRAY[t.token('m2')], '1 h');
SELECT t.claim(5), outbox.cancel(t.id('m3'), 'stop', force => true), t.claim(5) AS in_its_place;
-- Within a transaction its own ends make room; a rollback takes all of it back.
BEGIN;
SELECT t.delivered('m4'), t.claim(9);
SAVEPOINT s;
SELECT t.delivered('m5'), t.claim(9);
ROLLBACK TO s;
SELECT t.claim(9) AS none;
ROLLBACK;
SELECT t.claim(9) AS none;
SELECT count(*) FROM outbox.pending WHERE queue = 'l' AND claimed_by IS NOT NULL;
-- One statement that reports and claims.
SELECT outbox_id = t.id('m7') AS claimed FROM outbox.complete_and_claim('w', ARRAY[t.id('m4')], ARRAY[t.token('m4')], '{DISPATCHED}', batch_size => 5, queues => '{l}') WHERE lease_token IS NOT NULL;
-- An expired lease counts until it is repaired; a claim repairs where no background worker does.
SELECT t.expire('m5'), t.expire('m6');
SELECT t.claim(9) AS repaired;
SELECT event_type, attempt_no, state FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE state = 'ZOMBIE_REQUEUE' ORDER BY 1;
-- Optimistic sending counts, too.
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'o1', '1', 'l');
SELECT t.delivered('m7'), (SELECT lease_token IS NOT NULL FROM outbox.enqueue_and_claim('w', 'o2', '1', 'l')) AS leased, t.claim(9) AS none;
-- Another limit, more or less, acts at once; what is leased stays so.
SELECT outbox.alter_queue('l', max_in_flight => 5), t.claim(9);
SELECT outbox.alter_queue('l', max_in_flight => 1), t.claim(9) AS none, t.delivered('o2'), t.claim(9) AS none;
SELECT outbox.alter_queue('l', max_attempts => 9), t.claim(9) AS none, max_in_flight FROM outbox.queues WHERE queue = 'l';
SELECT outbox.alter_queue('l', max_in_flight => NULL), t.claim(9);
SELECT count(*) FROM outbox.pending WHERE queue = 'l' AND claimed_by IS NULL AND next_attempt_at <= now();

-- Ordered queues: the messages of a run count.
SELECT outbox.create_queue('f', ordering => 'fifo', max_in_flight => 2);
SELECT count(*) FROM unnest('{a1,a2,a3,b1}'::text[]) n, outbox.enqueue(n, '1', 'f', partition_key => left(n, 1));
SELECT t.claim(9, 'w', 'f'), t.claim(9, 'w', 'f') AS none;
SELECT t.delivered('a1'), t.claim(9, 'w', 'f');

-- Rates. One message takes a day, and the bucket is empty when the server starts; here it is filled by hand.
SELECT outbox.create_queue('r', rate_limit => 1 / 86400::float8, rate_burst => 4, backoff_base => '0');
SELECT count(*) FROM generate_series(1, 11) g, outbox.enqueue('r' || g, '1', 'r');
SELECT t.claim(9, 'w', 'r') AS none, count(*) FROM outbox.rate_spending;
CREATE FUNCTION t.fill() RETURNS void LANGUAGE sql AS $$
	INSERT INTO outbox.rate_spending VALUES ('r', -2 * 10 ^ 18, pg_postmaster_start_time())
	ON CONFLICT (queue) DO UPDATE SET spent_until = excluded.spent_until, started_at = excluded.started_at
$$;
SELECT t.fill(), t.claim(3, 'w', 'r'), t.claim(3, 'w', 'r'), t.claim(3, 'w', 'r') AS none;
-- Other queues of the same claim have their own. What was spent before the server started says nothing.
SELECT t.claim(9, 'w', 'r', 'f') AS none, t.fill();
UPDATE outbox.rate_spending SET started_at = started_at - interval '1 s';
SELECT t.claim(9, 'w', 'r') AS none, t.fill();
-- What is rolled back, also to a savepoint, is not spent; each try counts, and so does optimistic sending.
BEGIN;
SELECT t.claim(2, 'w', 'r');
SAVEPOINT s;
SELECT t.claim(9, 'w', 'r'), t.claim(9, 'w', 'r') AS none;
ROLLBACK TO s;
SELECT t.claim(1, 'w', 'r');
ROLLBACK;
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'o', '1', 'r');
SELECT recorded FROM outbox.complete(t.id('r1'), t.token('r1'), 'w', 'RETRYABLE');
SELECT t.claim(9, 'w', 'r'), (SELECT lease_token IS NOT NULL FROM outbox.enqueue_and_claim('w', 'p', '1', 'r')) AS leased;
-- One that claims nothing spends nothing; the lesser of two limits holds.
SELECT outbox.create_queue('empty', rate_limit => 1000000), t.claim(9, 'w', 'empty') AS none, count(*) FROM outbox.rate_spending WHERE queue = 'empty';
SELECT t.fill(), outbox.alter_queue('r', max_in_flight => 9), t.claim(9, 'w', 'r'), t.claim(9, 'w', 'r') AS none;
SELECT outbox.alter_queue('r', max_in_flight => NULL), t.claim(1, 'w', 'r'), t.claim(1, 'w', 'r') AS last, t.claim(1, 'w', 'r') AS none;
SELECT outbox.alter_queue('r', rate_limit => NULL), t.claim(1, 'w', 'r');
-- A dropped queue leaves nothing.
SELECT count(outbox.cancel(outbox_id, 'end', force => true)) FROM outbox.pending WHERE queue = 'r';
SELECT outbox.drop_queue('r'), (SELECT count(*) FROM outbox.rate_spending);
SELECT count(*) FROM outbox.rate_spending;

SELECT t.try(s) FROM (VALUES ($$SELECT outbox.create_queue('x', max_in_flight => 0)$$), ($$SELECT outbox.alter_queue('l', max_in_flight => -2)$$)) v(s);
SELECT * FROM outbox.check(deep => true) WHERE severity = 'error';
