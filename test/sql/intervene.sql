--
-- What an operator can do to a message between claim and completion: break_lease, reschedule,
-- and outbox.hold for all queues.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
SELECT outbox.create_queue('q', max_attempts => 2, repair_delay => '0');
SELECT outbox.create_queue('slow', repair_delay => '1 hour');

-- A lease is broken: as if it had expired and were repaired.
SELECT created FROM outbox.enqueue('m', '1', 'q');
SELECT event_type FROM outbox.claim('stuck', queues => '{q}');
SELECT t.token('m') AS token \gset
SELECT outbox.break_lease(t.id('m'), 'the worker hangs');
SELECT * FROM t.pending;
SELECT * FROM t.ledger;
-- The worker that held it is too late, whatever it tries.
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''stuck'', ''DISPATCHED'')', t.id('m'), :'token'));
SELECT attempt_no, recorded, error FROM outbox.complete_batch('stuck', ARRAY[t.id('m')], ARRAY[:'token']::uuid[], '{DISPATCHED}');
SELECT error FROM outbox.renew('stuck', ARRAY[t.id('m')], ARRAY[:'token']::uuid[]);
SELECT error FROM outbox.release('stuck', ARRAY[t.id('m')], ARRAY[:'token']::uuid[]);
-- At the ceiling that ends the message.
SELECT event_type, attempt_count FROM outbox.claim('again', queues => '{q}');
SELECT outbox.break_lease(t.id('m'), 'again');
SELECT count(*) FROM outbox.pending;
SELECT * FROM t.ledger;
SELECT event_type, error_code, error_message FROM outbox.dead_letters;
-- The delay of a repair; an expired lease; one that a message is born with.
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'slow', '1', 'slow');
SELECT t.expire('slow');
SELECT outbox.break_lease(t.id('slow'), 'late');
SELECT message, state FROM t.pending;
SELECT message, no, state, worker_id, error_code FROM t.ledger WHERE message = 'slow';
SELECT count(*) FROM outbox.repair_expired_leases();
-- What is refused changes nothing.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.break_lease(t.id('slow'), 'r')$$),
	($$SELECT outbox.break_lease(t.id('m'), 'r')$$),
	($$SELECT outbox.break_lease('00000000-0000-7000-8000-000000000000', 'r')$$),
	($$SELECT outbox.break_lease(NULL, 'r')$$),
	($$SELECT outbox.break_lease(t.id('slow'), NULL)$$),
	($$SELECT outbox.break_lease(t.id('slow'), '')$$)) v(s);
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'ended', '1', 'q');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) SELECT t.id('ended'), 1, 'DISPATCHED', now();
SELECT t.try($$SELECT outbox.break_lease(t.id('ended'), 'r')$$);
SELECT count(*) FROM outbox.attempts WHERE outbox_id = t.id('ended');
SELECT t.lose();

-- A message is made due now, later, and at another priority.
SELECT e FROM unnest('{a,b,c}'::text[]) e, outbox.enqueue(e, '1', 'q', deliver_at => clock_timestamp() + interval '1 day');
SELECT outbox.reschedule(t.id('b'), clock_timestamp()) <= clock_timestamp() AS due;
SELECT event_type FROM outbox.claim('w', queues => '{q}');
SELECT recorded FROM outbox.complete(t.id('b'), t.token('b'), 'w', 'DISPATCHED');
SELECT count(outbox.reschedule(t.id(e), priority => p)) FROM (VALUES ('a', 1), ('c', 2)) v(e, p);
SELECT message, state, p.priority FROM t.pending JOIN outbox.pending p ON p.outbox_id = t.id(message);
SELECT count(outbox.reschedule(t.id(e), '2000-01-01')) FROM unnest('{a,c}'::text[]) e;
-- Not before it was enqueued: its age is what it was.
SELECT bool_and(next_attempt_at = created_at) AS since_enqueued FROM outbox.pending;
SELECT oldest_due_age_seconds < 1000 AS sane FROM outbox.status WHERE queue = 'q';
-- The clock was set back since it was enqueued: at once all the same.
UPDATE outbox.pending SET created_at = created_at + interval '1 day', next_attempt_at = created_at + interval '1 day' WHERE outbox_id = t.id('a');
SELECT outbox.reschedule(t.id('a'), d) <= clock_timestamp() AS due FROM unnest(ARRAY[clock_timestamp(), '2000-01-01']) d;
UPDATE outbox.pending SET created_at = created_at - interval '1 day' WHERE outbox_id = t.id('a');
SELECT next_attempt_at >= created_at AS sane FROM outbox.pending WHERE outbox_id = t.id('a');
SELECT event_type, priority FROM outbox.claim('w', 1, queues => '{q}');
SELECT outbox.reschedule(t.id('a'), clock_timestamp() + interval '1 hour', 15) > clock_timestamp() AS later;
SELECT message, state FROM t.pending;
SELECT count(*) FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE event_type IN ('a', 'c');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.reschedule(t.id('c'), now())$$),
	($$SELECT outbox.reschedule(t.id('b'), now())$$),
	($$SELECT outbox.reschedule(NULL, now())$$),
	($$SELECT outbox.reschedule(t.id('a'))$$),
	($$SELECT outbox.reschedule(t.id('a'), 'infinity')$$),
	($$SELECT outbox.reschedule(t.id('a'), '-infinity')$$),
	($$SELECT outbox.reschedule(t.id('a'), '9999-01-01')$$),
	($$SELECT outbox.reschedule(t.id('a'), priority => 16)$$),
	($$SELECT outbox.reschedule(t.id('a'), priority => -1)$$)) v(s);
SELECT t.expire('c');
SELECT t.try($$SELECT outbox.reschedule(t.id('c'), now())$$);
SELECT message, state, attempts FROM t.pending;

-- A copy that is held delivers nothing, and says so; reports and enqueues go on.
SELECT t.lose();
SELECT created FROM outbox.enqueue('held', '1');
SELECT event_type FROM outbox.claim('w');
SELECT created FROM outbox.enqueue('waiting', '1');
SET outbox.hold = on;
SELECT count(*) FROM outbox.claim('w', queues => '{default,q}');
SELECT count(*) FROM outbox.claim('w', wait => '1 ms');
CALL outbox.wait_for_work('1 ms');
SELECT created, lease_token IS NULL AS unleased FROM outbox.enqueue_and_claim('w', 'optimistic', '1');
SELECT recorded FROM outbox.complete(t.id('held'), t.token('held'), 'w', 'DISPATCHED');
SELECT count(*) FROM outbox.complete_and_claim('w', '{}', '{}', '{}');
SELECT count(*) FROM outbox.maintain() WHERE action = 'notified';
SELECT severity, object, problem FROM outbox.check() WHERE object = 'outbox.hold';
SET ROLE outbox_operator;
SET outbox.hold = off;
RESET ROLE;
RESET outbox.hold;
SELECT event_type FROM outbox.claim('w');
SELECT count(*) FROM outbox.check() WHERE object = 'outbox.hold';

SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
