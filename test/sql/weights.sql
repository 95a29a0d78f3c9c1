--
-- queue_weights: several queues take shares of a claim, so that a busy first one does not starve the second.
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('busy'), outbox.create_queue('quiet'), outbox.create_queue('third');
-- What a claim took, in its order, as how many of which queue in a row.
CREATE FUNCTION t.taken(n integer, queues text[], weights integer[] DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(n || ' ' || queue, ', ' ORDER BY first) FROM (
		SELECT queue, count(*) AS n, min(row) AS first FROM (
			SELECT queue, row, row - row_number() OVER (PARTITION BY queue ORDER BY row) AS island
			FROM (SELECT queue, row_number() OVER () AS row FROM outbox.claim('w', n, queues => queues, queue_weights => weights)) c) i
		GROUP BY queue, island) r
$$;
CREATE FUNCTION t.free() RETURNS void LANGUAGE sql AS $$
	UPDATE outbox.pending SET claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL WHERE claimed_by IS NOT NULL
$$;
SELECT count(*) FROM generate_series(1, 1000) g, outbox.enqueue('m', to_jsonb(g), 'busy');
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue('m', to_jsonb(g), 'quiet');

-- In order the second one waits for the end of the first. Each gets its share, in the order of the queues.
SELECT t.taken(10, '{busy, quiet}') AS in_order, t.taken(10, '{busy, quiet}', '{4, 1}') AS shares;
-- What one does not have is shared by the others.
SELECT t.taken(10, '{quiet, busy}', '{1, 1}'), t.taken(10, '{quiet, busy}', '{1, 1}') AS again, t.free();
SELECT count(*) FROM generate_series(1, 100) g, outbox.enqueue('m', to_jsonb(g), 'third');
SELECT t.taken(15, '{third, quiet, busy}', '{1, 3, 1}'), t.free();
-- More than there is: all of it.
SELECT t.taken(10000, '{quiet, third}', '{7, 1}'), t.free();
-- A share that is no whole number is rounded down or up.
SELECT count(*) FROM generate_series(1, 9) g, outbox.enqueue('m', to_jsonb(g), 'quiet');
SELECT t.taken(3, '{busy, quiet}', '{1, 1}') IN ('1 busy, 2 quiet', '2 busy, 1 quiet') AS rounded, t.free();
-- One message at a time: chance decides, in proportion (100 of 400; beyond 40 to 160 one time in 10^11).
SELECT count(*) FROM generate_series(1, 400) g, outbox.enqueue('m', to_jsonb(g), 'quiet');
SELECT count(*) AS claims, count(*) FILTER (WHERE taken = '1 quiet') BETWEEN 40 AND 160 AS quiet, count(*) FILTER (WHERE taken = '1 busy') BETWEEN 240 AND 360 AS busy
FROM (SELECT t.taken(1 + g * 0, '{busy, quiet}', '{3, 1}') FROM generate_series(1, 400) g) c;
SELECT t.free();
-- Of three, the share of the one that is empty goes to both others: some two thirds and a third.
SELECT outbox.create_queue('empty');
SELECT count(*) FILTER (WHERE taken = '1 busy') BETWEEN 50 AND 150 AS busy, count(*) FILTER (WHERE taken = '1 quiet') BETWEEN 150 AND 250 AS quiet
FROM (SELECT t.taken(1 + g * 0, '{busy, empty, quiet}', '{1, 8, 2}') FROM generate_series(1, 300) g) c;
SELECT t.free();

-- A paused queue has no share.
SELECT outbox.pause('busy'), t.taken(10, '{busy, quiet}', '{9, 1}') AS paused, outbox.resume('busy'), t.free();
SELECT t.taken(3, '{empty, busy}', '{100, 1}'), t.taken(3, '{empty}', '{5}') AS nothing, t.free();
-- A limit leaves its share to the others.
SELECT outbox.alter_queue('busy', max_in_flight => 3), t.taken(10, '{busy, quiet}', '{4, 1}') AS limited, t.taken(2, '{busy, quiet}', '{1, 1}') AS reached, t.free();
SELECT outbox.alter_queue('busy', max_in_flight => NULL);
-- What a rate grants in one round is spent in the next one as well.
SELECT outbox.alter_queue('busy', rate_limit => 1000000), outbox.alter_queue('third', rate_limit => 1000000, max_in_flight => 4);
SELECT t.taken(20, '{empty, third, busy}', '{1, 2, 2}'), t.taken(20, '{empty, third, busy}', '{1, 2, 2}') AS again, t.free();
SELECT outbox.alter_queue('busy', rate_limit => NULL), outbox.alter_queue('third', rate_limit => NULL, max_in_flight => NULL);
-- The runs of ordered queues go on behind the heads of an earlier round.
SELECT outbox.create_queue('fifo', ordering => 'fifo');
SELECT count(*) FROM generate_series(1, 10) g, outbox.enqueue('f' || g, '1', 'fifo', partition_key => 'k');
BEGIN;
SELECT sequence_id FROM outbox.claim('w', 10, queues => '{empty, fifo}', queue_weights => '{1, 1}');
ROLLBACK;
SELECT t.taken(8, '{fifo, quiet}', '{1, 1}'), t.free();
-- A lost lease is recorded in whichever round it is found.
SELECT outbox.create_queue('lost', repair_delay => '0');
SELECT count(*) FROM generate_series(1, 4) g, outbox.enqueue('l' || g, '1', 'lost');
SELECT t.taken(4, '{lost}');
SELECT t.expire('l' || g) FROM generate_series(1, 4) g;
SELECT t.taken(4, '{empty, lost}', '{1, 1}'), (SELECT count(*) FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE') AS before;
SELECT count(*) AS recorded FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE';
SELECT t.free();

-- A queue listed twice counts once, with its first weight; the greatest weights; an array that does not begin at 1; a claim that may wait.
SELECT t.taken(10, '{busy, quiet, busy, quiet}', '{4, 1, 1000, 1000}') AS twice, t.taken(2, '{busy, quiet}', '{2147483647, 2147483647}') AS greatest,
	t.taken(2, '[3:4]={busy, quiet}', '[0:1]={1, 1}') AS bounds;
SELECT queue, count(*) FROM outbox.claim('w', 4, queues => '{busy, quiet}', wait => '1 min', queue_weights => '{1, 1}') GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM outbox.claim('w', 4, queues => '{empty}', wait => '10 ms', queue_weights => '{1}');
SELECT queue, count(*) FROM outbox.complete_and_claim('w', '{}', '{}', '{}', batch_size => 6, queues => '{busy, quiet}', queue_weights => '{1, 2}') GROUP BY 1 ORDER BY 1;

-- What is refused.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.claim('w', queue_weights => '{1}')$$),
	($$SELECT outbox.claim('w', queues => '{busy}', queue_weights => '{}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, quiet}', queue_weights => '{1}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, busy}', queue_weights => '{1}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, quiet}', queue_weights => '{1, NULL}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, quiet}', queue_weights => '{1, 0}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, busy}', queue_weights => '{1, 0}')$$),
	($$SELECT outbox.claim('w', queues => '{busy}', queue_weights => '{-2147483648}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, quiet}', queue_weights => '{{1}, {1}}')$$),
	($$SELECT outbox.claim('w', queues => '{busy, nowhere}', queue_weights => '{1, 1}')$$),
	($$SELECT outbox.complete_and_claim('w', '{}', '{}', '{}', queue_weights => '{1}')$$),
	($$SELECT outbox.complete_and_claim('w', '{}', '{}', '{}', queues => '{busy}', queue_weights => '{0}')$$)) AS v(s);
SELECT * FROM outbox.check(deep => true) WHERE severity = 'error';
