--
-- explain: why a message is not delivered, in each state that it can be in.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- Ids, times and how far they are from now are masked.
CREATE FUNCTION t.explained(type text) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(regexp_replace(t.without_ids(outbox.explain(t.id(type))), '<time> \((in )?[0-9a-z: ]+?( ago)?\)', '<time> (\1<interval>\2)', 'g'),
		current_user::text, '(me)', 'g')
$$;

-- What there is not.
SELECT outbox.explain('00000000-0000-7000-8000-000000000001');
SELECT outbox.explain(NULL) IS NULL AS nothing_asked;

-- Due, scheduled, leased, to be tried again, given back, lost by a worker.
SELECT count(*) FROM unnest('{due,later,held,again,back,lost,last}'::text[]) e, outbox.enqueue(e, '1', routing_key => 'r', max_attempts => CASE e WHEN 'last' THEN 1 END);
SELECT t.hold('later');
SELECT t.explained('due');
SELECT t.explained('later');
SELECT count(*) FROM outbox.claim('worker 1', 6, '1 hour');
SELECT recorded FROM outbox.complete(t.id('again'), t.token('again'), 'worker 1', 'RETRYABLE', error_code => 'TIMEOUT', error_message => 'no answer', retry_delay => '1 hour');
SELECT error FROM outbox.release('worker 1', ARRAY[t.id('back')], ARRAY[t.token('back')], '1 hour');
SELECT t.expire('lost');
SELECT t.explained(e) FROM unnest('{held,last,again,back,lost}'::text[]) e;
SELECT t.expire('last');
SELECT t.explained('last');
-- Due again, with attempts, beside what others hold.
SELECT t.due('again');
SELECT t.explained('again');

-- How it ended.
SELECT recorded FROM outbox.complete(t.id('held'), t.token('held'), 'worker 1', 'DISPATCHED', 'receipt');
SELECT recorded FROM outbox.complete(t.id('due'), t.token('due'), 'worker 1', 'FAILED', error_code => 'GONE');
SELECT t.explained(e) FROM unnest('{held,due}'::text[]) e;
SELECT outbox.acknowledge_dead(t.id('due'), 'receiver was shut down');
SELECT t.explained('due');
SELECT outbox.replay(t.id('due')) IS NOT NULL AS replayed;
INSERT INTO t.known SELECT replay_of, 'the dead letter' FROM outbox.messages WHERE replay_of IS NOT NULL;
INSERT INTO t.known SELECT outbox_id, 'the replay' FROM outbox.messages WHERE replay_of IS NOT NULL;
SELECT regexp_replace(t.without_ids(outbox.explain(value)), '<time> \(.*? ago\)', '<time>', 'g') FROM t.known WHERE label = 'the dead letter';
SELECT outbox.cancel(t.id('back'), 'ordered twice');
SELECT t.explained('back');

-- What is in its way: the queue is paused, everything is held, a limit, a priority, no such queue.
SELECT outbox.create_queue('limited', max_in_flight => 1), outbox.create_queue('by key', max_in_flight_per_key => 1), outbox.create_queue('slow', rate_limit => 0.5), outbox.create_queue('handled');
SELECT count(*) FROM unnest('{limited,by key,slow}'::text[]) q, generate_series(1, 2) n, outbox.enqueue(q || ' ' || n, '1', q, partition_key => 'k');
SELECT event_type FROM unnest('{limited,by key}'::text[]) q, outbox.claim('worker 2', 2, queues => ARRAY[q]);
SELECT t.explained(e) FROM unnest('{limited 2,by key 2,slow 1}'::text[]) e;
SELECT outbox.pause('slow');
SET outbox.hold = on;
SELECT t.explained('slow 1');
RESET outbox.hold;
SELECT t.hold('slow 2');
SELECT t.explained('slow 2');
SELECT outbox.resume('slow');
SELECT created FROM outbox.enqueue('slow urgent', '1', 'slow', priority => 9);
SELECT t.explained('slow 1');
CREATE FUNCTION t.handle(outbox.claimed) RETURNS void LANGUAGE sql AS '';
SELECT outbox.alter_queue('handled', handler => 't.handle');
SELECT count(*) FROM unnest('{handled,handled later}'::text[]) e, outbox.enqueue(e, '1', 'handled');
SELECT t.hold('handled later');
SELECT t.explained(e) FROM unnest('{handled,handled later}'::text[]) e;
-- Where claims go by another order.
SELECT outbox.create_queue('fair', fair_by => 'partition_key'), outbox.create_queue('aging', priority_aging => '1 hour');
SELECT count(*) FROM unnest('{fair,aging}'::text[]) q, generate_series(1, 2) n, outbox.enqueue(q || ' ' || n, '1', q, partition_key => 'k', priority => n);
SELECT t.explained(e) FROM unnest('{fair 1,aging 1}'::text[]) e;
UPDATE outbox.pending SET queue = 'gone' WHERE outbox_id = t.id('slow 2');
SELECT t.explained('slow 2');

-- In an ordered key: behind what is due, leased, tried again, scheduled, dead.
SELECT outbox.create_queue('f', ordering => 'fifo', on_dead_head => 'block');
SELECT count(*) FROM generate_series(1, 3) n, outbox.enqueue('f' || n, '1', 'f', partition_key => 'key', max_attempts => 2);
SELECT t.explained(e) FROM unnest('{f1,f2,f3}'::text[]) e;
SELECT event_type FROM outbox.claim('worker 3', 1, queues => '{f}');
SELECT t.explained('f2');
SELECT t.expire('f1');
SELECT t.explained('f2');
SELECT state FROM outbox.repair_expired_leases(queues => '{f}');
SELECT t.hold('f1');
SELECT t.explained('f2');
SELECT t.due('f1');
SELECT event_type FROM outbox.claim('worker 3', 1, queues => '{f}');
SELECT recorded FROM outbox.complete(t.id('f1'), t.token('f1'), 'worker 3', 'FAILED', error_code => 'BAD');
SELECT t.hold('f3');
SELECT t.explained(e) FROM unnest('{f1,f3}'::text[]) e;
BEGIN;
SELECT outbox.acknowledge_dead(t.id('f1'), 'receiver was shut down');
SELECT t.explained('f1');
ROLLBACK;
SELECT t.due('f3');
SELECT outbox.unblock('f', 'key') = t.id('f1') AS unblocked;
SELECT t.explained(e) FROM unnest('{f1,f2}'::text[]) e;

-- Leased with the message before it.
SELECT event_type FROM outbox.claim('worker 3', 2, queues => '{f}');
SELECT t.explained('f3');
SELECT error FROM outbox.release('worker 3', ARRAY[t.id('f2'), t.id('f3')], ARRAY[t.token('f2'), t.token('f3')]);

-- What only a superuser can bring about.
SELECT t.lose($$outbox_id = t.id('f3')$$);
SELECT t.explained('f3');
INSERT INTO outbox.pending (outbox_id, queue) VALUES ('00000000-0000-7000-8000-000000000002', 'default');
SELECT t.without_ids(outbox.explain('00000000-0000-7000-8000-000000000002')) ~ 'not found in messages: see outbox.check\(\)' AS says_so;

-- The reader's time zone and language of times.
SET timezone = 'Asia/Tokyo';
SET datestyle = 'German';
SELECT outbox.explain(t.id('f2')) ~ 'is due since \d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d JST \(\d\d:\d\d:\d\d ago\)' AS in_tokyo;
RESET datestyle;
RESET timezone;
-- It reads, as an operator or a reader may; no worker may.
BEGIN READ ONLY;
SET LOCAL ROLE outbox_readonly;
SELECT outbox.explain(outbox_id) ~ 'is due since' AS may FROM outbox.messages WHERE event_type = 'f2';
ROLLBACK;
SELECT t.try($$SET LOCAL ROLE outbox_executor; SELECT outbox.explain('00000000-0000-7000-8000-000000000001')$$);
