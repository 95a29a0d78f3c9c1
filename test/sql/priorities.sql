--
-- Priorities: higher first; with priority_aging, higher first of what they have become while they waited; at a cost that
-- does not depend on what waits in others. (With scan floors: 042_priorities.)
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
\set helpers :testdir /sql/priorities.inc
\i :helpers

-- SEED=n repeats a run that failed.
\getenv seed SEED
\if :{?seed}
\else
SELECT floor(random() * 2147483647)::int AS seed \gset
\endif
\set ECHO all
SELECT outbox.create_queue('strict'), outbox.create_queue('aged', priority_aging => '1 hour'), outbox.create_queue('fifo', ordering => 'fifo', priority_aging => '1 hour');

-- The order, whole and in parts.
CREATE FUNCTION t.differences(name text, seed integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	batch integer;
	answer text;
BEGIN
	FOR i IN 1 .. 12 LOOP
		batch := (ARRAY[1, 3, 10, 1000])[1 + i % 4];
		BEGIN
			PERFORM t.fill(name, 200, seed + i);
			answer := t.in_order(name, batch);
			RAISE 'undo' USING ERRCODE = 'OB000';
		EXCEPTION WHEN SQLSTATE 'OB000' THEN
			NULL;
		END;
		IF answer <> 'in order' THEN RETURN NEXT format('SEED=%s, %s, batches of %s: %s', seed, i, batch, answer); END IF;
	END LOOP;
END
$$;
SELECT * FROM t.differences('strict', :seed);
SELECT * FROM t.differences('aged', :seed);
SELECT * FROM t.differences('fifo', :seed);
-- That this can fail: the order of a queue is not that of the other.
BEGIN;
SELECT t.fill('aged', 300, 5);
CREATE TEMP TABLE taken AS SELECT row_number() OVER () AS n, outbox_id FROM outbox.claim('w', 300, queues => '{aged}');
SELECT count(*) > 0 AS not_strict FROM taken a JOIN taken b ON a.n < b.n JOIN outbox.messages ma ON ma.outbox_id = a.outbox_id JOIN outbox.messages mb ON mb.outbox_id = b.outbox_id
WHERE ma.priority < mb.priority;
ROLLBACK;
-- More than a claim reads at a time.
BEGIN;
SELECT t.fill('aged', 2500, :seed % 1000000);
SELECT CASE answer WHEN 'in order' THEN answer ELSE format('SEED=%s: %s', :seed, answer) END FROM t.in_order('aged', 2400) answer;
ROLLBACK;

-- Since ever, which the table allows only without its CHECK.
BEGIN;
ALTER TABLE outbox.pending DROP CONSTRAINT pending_times_are_finite;
SELECT t.fill('aged', 300, :seed);
UPDATE outbox.pending SET next_attempt_at = '-infinity' WHERE queue = 'aged' AND random() < 0.1 AND claimed_by IS NULL;
SELECT CASE answer WHEN 'in order' THEN answer ELSE format('SEED=%s: %s', :seed, answer) END FROM t.in_order('aged', 7) answer;
ROLLBACK;

-- Which of two comes first: a rise makes the lower one equal, and then the higher one is first; one more, and it is second.
CREATE FUNCTION t.first(low_waits interval, high_waits interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM outbox.enqueue(name, '1', 'aged', priority => priority) FROM (VALUES ('low', 3), ('high', 4)) v(name, priority);
	UPDATE outbox.pending SET next_attempt_at = now() - CASE priority WHEN 3 THEN low_waits ELSE high_waits END WHERE queue = 'aged';
	SELECT string_agg(event_type, ' ') INTO answer FROM outbox.claim('w', queues => '{aged}');
	RETURN answer;
END
$$;
BEGIN; SELECT t.first('59 min', '1 min'); ROLLBACK;
BEGIN; SELECT t.first('61 min', '1 min'); ROLLBACK;
BEGIN; SELECT t.first('119 min', '1 min'); ROLLBACK;
BEGIN; SELECT t.first('121 min', '1 min'); ROLLBACK;
BEGIN; SELECT t.first('121 min', '61 min'); ROLLBACK;
-- The wait begins when a message becomes due, also again: a retry begins with its own.
BEGIN;
SELECT created FROM outbox.enqueue('retry', '1', 'aged', priority => 3);
UPDATE outbox.pending SET next_attempt_at = now() - interval '10 h';
SELECT recorded FROM outbox.claim('w', queues => '{aged}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE', retry_delay => '0');
SELECT created FROM outbox.enqueue('high', '1', 'aged', priority => 4);
SELECT event_type FROM outbox.claim('w', queues => '{aged}');
ROLLBACK;
-- A change acts at once; 0 removes it; a rise may take a microsecond or ten years.
BEGIN;
SELECT count(*) FROM (VALUES ('low', 3), ('high', 4)) v(name, p), outbox.enqueue(name, '1', 'aged', priority => p);
UPDATE outbox.pending SET next_attempt_at = now() - CASE priority WHEN 3 THEN interval '3 h' ELSE '0' END;
SAVEPOINT s;
SELECT outbox.alter_queue('aged', priority_aging => '0');
SELECT event_type FROM outbox.claim('w', 1, queues => '{aged}');
ROLLBACK TO s;
SELECT outbox.alter_queue('aged', priority_aging => '3650 days');
SELECT event_type FROM outbox.claim('w', 1, queues => '{aged}');
ROLLBACK TO s;
SELECT outbox.alter_queue('aged', priority_aging => '1 us');
SELECT event_type FROM outbox.claim('w', 1, queues => '{aged}');
ROLLBACK TO s;
-- By hand: longer than any wait; the longest wait by the shortest rise.
UPDATE outbox.queues SET priority_aging = '290000 years' WHERE queue = 'aged';
SELECT event_type FROM outbox.claim('w', 1, queues => '{aged}');
ROLLBACK TO s;
UPDATE outbox.pending SET next_attempt_at = '4700-01-01 BC';
UPDATE outbox.queues SET priority_aging = '1 us' WHERE queue = 'aged';
SELECT event_type FROM outbox.claim('w', queues => '{aged}');
ROLLBACK;

-- A flood: each minute 20 messages of priority 15 come, and 10 are claimed. A message of priority 0 comes after those that
-- came up to 15 minutes later than it: 320 of them. Without aging it never comes.
CREATE FUNCTION t.flood(name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := 0;
	types text[];
BEGIN
	PERFORM outbox.enqueue('low', '1', name);
	FOR minute IN 0 .. 60 LOOP
		PERFORM outbox.enqueue('high', to_jsonb(g), name, priority => 15) FROM generate_series(1, 20) g;
		SELECT array_agg(event_type) INTO types FROM outbox.claim('w', 10, queues => ARRAY[name]);
		IF 'low' = ANY (types) THEN RETURN before + array_position(types, 'low') - 1; END IF;
		before := before + cardinality(types);
		UPDATE outbox.pending SET next_attempt_at = next_attempt_at - interval '1 min' WHERE queue = name AND claimed_by IS NULL;
	END LOOP;
	RETURN NULL;
END
$$;
SELECT outbox.create_queue('flooded', priority_aging => '1 min'), outbox.create_queue('flooded strict');
SELECT t.flood('flooded') AS claimed_before, t.flood('flooded strict') AS never;

-- What a claim reads does not depend on the backlog of other priorities.
SELECT outbox.create_queue('cost'), outbox.create_queue('aged cost', priority_aging => '1 hour');
CREATE FUNCTION t.backlog(n integer) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM unnest('{cost, aged cost}'::text[]) q, LATERAL outbox.enqueue_batch(q, (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g, 'priority', 5))
		FROM generate_series(1, n) g)) WITH ORDINALITY b
$$;
CREATE FUNCTION t.cost(OUT higher bigint, OUT lower bigint, OUT aged_higher bigint, OUT aged_lower bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox.enqueue('e', to_jsonb(g), q, priority => p) FROM unnest('{cost, aged cost}'::text[]) q, generate_series(1, 10) g, unnest('{9, 3}'::int[]) p;
	higher := t.entries($s$SELECT outbox.claim('w', 10, queues => '{cost}')$s$);
	aged_higher := t.entries($s$SELECT outbox.claim('w', 10, queues => '{aged cost}')$s$);
	-- Those that have become the first, and those that have not.
	UPDATE outbox.pending SET next_attempt_at = now() - interval '10 h' WHERE priority = 3 AND claimed_by IS NULL AND queue IN ('cost', 'aged cost');
	lower := t.entries($s$SELECT outbox.claim('w', 10, queues => '{cost}')$s$);
	aged_lower := t.entries($s$SELECT outbox.claim('w', 10, queues => '{aged cost}')$s$);
END
$$;
SELECT t.backlog(1000);
BEGIN; SELECT * FROM t.cost(); ROLLBACK;
SELECT t.backlog(9000);
VACUUM outbox.pending;
BEGIN; SELECT * FROM t.cost(); ROLLBACK;
SELECT * FROM outbox.check(deep => true) WHERE severity = 'error';
