--
-- cancel_many, replay_many, purge, and the batches under them.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q'), outbox.create_queue('other');
CREATE VIEW t.dead AS SELECT event_type, error_code, error_message FROM outbox.dead_letters WHERE acknowledged_at IS NULL ORDER BY event_type COLLATE "C";
CREATE VIEW t.events AS SELECT event, actor = session_user AS mine, cardinality(outbox_ids) AS ids, attempt_nos, detail ->> 'reason' AS reason, count(*) FROM outbox.events
	WHERE event LIKE 'MESSAGE%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 5;

-- Ten messages: 1 and 2 were tried, 3 is leased, the lease of 4 has run out, 5 is scheduled.
SELECT count(*) FROM generate_series(1, 10) n, outbox.enqueue(CASE WHEN n < 6 THEN 'a' ELSE 'b' END || n, '1', 'q') WHERE created;
SELECT created FROM outbox.enqueue('a0', '1', 'other');
SELECT count(*) FROM outbox.claim('w', 4, queues => '{q}');
SELECT error FROM outbox.complete_batch('w', ARRAY[t.id('a1'), t.id('a2')], ARRAY[t.token('a1'), t.token('a2')], '{RETRYABLE,RETRYABLE}', error_codes => '{E1,E2}', retry_delays => '{1 hour,1 hour}');
SELECT t.expire('a4'), t.hold('a5');

-- By default nothing is done.
SELECT event, last_error, matching, done, skipped, remaining, why, sample = t.id(event) AS sample FROM outbox.cancel_many('q', 'r');
SELECT sum(matching) AS matching, sum(done) AS done FROM outbox.cancel_many('q', 'r', dry_run => NULL);
SELECT sum(matching) FROM outbox.cancel_many('q', 'r', event_type => 'a1', dry_run => true);
-- Filters: type, last error, time; nothing matches.
SELECT 'type' AS by, event FROM outbox.cancel_many('q', 'r', event_type => 'b7')
UNION ALL SELECT 'error', event FROM outbox.cancel_many('q', 'r', error_code => 'E2')
UNION ALL SELECT 'both', event FROM outbox.cancel_many('q', 'r', event_type => 'b7', error_code => 'E2')
UNION ALL SELECT 'since', event FROM outbox.cancel_many('q', 'r', since => (SELECT created_at FROM outbox.pending WHERE outbox_id = t.id('b10')))
UNION ALL SELECT 'until', event FROM outbox.cancel_many('q', 'r', until => (SELECT created_at FROM outbox.pending WHERE outbox_id = t.id('a2')))
UNION ALL SELECT 'future', event FROM outbox.cancel_many('q', 'r', since => now() + interval '1 day');
SELECT count(*) AS pending FROM outbox.pending;
SELECT count(*) AS events FROM t.events;

-- It acts, oldest first, so many in a call; what a worker holds stays.
SELECT event, last_error, matching, done, skipped, remaining, why FROM outbox.cancel_many('q', 'wrong template', batch_size => 4, dry_run => false) ORDER BY event COLLATE "C";
SELECT message, state FROM t.pending;
SELECT * FROM t.ledger WHERE state = 'FAILED';
SELECT sum(done) AS done, sum(remaining) AS remaining FROM outbox.cancel_many('q', 'wrong template', batch_size => 4, dry_run => false);
SELECT event, done, skipped, why FROM outbox.cancel_many('q', 'wrong template', dry_run => false) ORDER BY event COLLATE "C";
SELECT event, done, skipped, why FROM outbox.cancel_many('q', 'wrong template', dry_run => false);
SELECT token AS token FROM (SELECT t.token('a3') AS token) t \gset
SELECT event, done, skipped, why FROM outbox.cancel_many('q', 'wrong template', dry_run => false, force => true);
SELECT error FROM outbox.complete_batch('w', ARRAY[t.id('a3')], ARRAY[:'token'::uuid], '{DISPATCHED}');
SELECT * FROM outbox.cancel_many('q', 'wrong template', dry_run => false);
SELECT message, state FROM t.pending;
-- As cancel() leaves it: the events, the counters' messages, the dead letters.
SELECT * FROM t.events;
SELECT event_type, error_code, error_message FROM t.dead LIMIT 3;

-- What was cancelled is not replayed unless that is asked for; neither is what was acknowledged.
SELECT count(*) FROM outbox.replay_many('q');
SELECT outbox.acknowledge_dead(t.id('a1'), 'never mind');
SELECT event, last_error, matching, done, skipped, remaining, why, sample = t.id(event) AS sample FROM outbox.replay_many('q', error_code => 'CANCELLED', batch_size => 2) ORDER BY event COLLATE "C";
SELECT count(*) AS pending FROM outbox.pending WHERE queue = 'q';
SELECT event, matching, done, remaining FROM outbox.replay_many('q', error_code => 'CANCELLED', batch_size => 2, dry_run => false) ORDER BY event COLLATE "C";
SELECT message, state FROM t.pending WHERE queue = 'q';
SELECT count(*) AS replays FROM outbox.messages WHERE replay_of IS NOT NULL;
SELECT * FROM t.events WHERE event = 'MESSAGE_REPLAYED';
-- A replay that dies is not replayed again, unless again is true.
SELECT count(*) FROM outbox.claim('w', 10, queues => '{q}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'FAILED', error_code => 'E3');
SELECT event, last_error, matching, skipped, remaining, why FROM outbox.replay_many('q') ORDER BY event COLLATE "C" LIMIT 2;
SELECT event, last_error, done FROM outbox.replay_many('q', again => true, dry_run => false) ORDER BY event COLLATE "C";
-- Neither is one that was cancelled, and it is said.
SELECT event, done FROM outbox.cancel_many('q', 'r', event_type => 'a2', dry_run => false);
SELECT event, matching, skipped, remaining, why FROM outbox.replay_many('q', event_type => 'a2', error_code => 'CANCELLED', dry_run => false);
SELECT event, done FROM outbox.replay_many('q', event_type => 'a2', error_code => 'CANCELLED', again => true, dry_run => false);
-- By type and time of death.
SELECT event FROM outbox.replay_many('q', event_type => 'b7', error_code => 'CANCELLED');
SELECT count(*) FROM outbox.replay_many('q', error_code => 'CANCELLED', since => (SELECT died_at FROM outbox.dead WHERE outbox_id = t.id('b7')));
SELECT count(*) FROM outbox.replay_many('q', error_code => 'CANCELLED', until => (SELECT died_at FROM outbox.dead WHERE outbox_id = t.id('b7')));

-- A fault of one message stops that message alone: one has ended by the ledger, one is refused by a CHECK of a user.
SELECT count(*) FROM generate_series(1, 5) n, outbox.enqueue('c' || n, to_jsonb(n), 'other');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (t.id('c2'), 1, 'DISPATCHED', clock_timestamp());
SELECT event, done, skipped, why FROM outbox.cancel_many('other', 'r', dry_run => false) ORDER BY event COLLATE "C";
SET client_min_messages = warning;
SELECT outbox_id AS c3 FROM outbox.dead WHERE outbox_id = t.id('c3') \gset
ALTER TABLE outbox.messages ADD CONSTRAINT refused CHECK (replay_of IS DISTINCT FROM :'c3') NOT VALID;
RESET client_min_messages;
SELECT event, done, skipped, why FROM outbox.replay_many('other', error_code => 'CANCELLED', dry_run => false) ORDER BY event COLLATE "C";
ALTER TABLE outbox.messages DROP CONSTRAINT refused;
SELECT count(*) FROM outbox.replay_many('other', error_code => 'CANCELLED', dry_run => false) WHERE done = 1;

-- Those that fail each time hold up no others: batch_size counts what is done.
SELECT outbox.create_queue('starved');
SELECT count(*) FROM generate_series(1, 6) n, outbox.enqueue('s' || n, to_jsonb(n), 'starved');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) SELECT t.id(e), 1, 'DISPATCHED', clock_timestamp() FROM unnest('{s1,s2}'::text[]) e;
SELECT event, done, skipped, remaining, why FROM outbox.cancel_many('starved', 'r', batch_size => 2, dry_run => false) ORDER BY event COLLATE "C";
SELECT sum(done) AS done, sum(skipped) AS skipped, sum(remaining) AS remaining FROM outbox.cancel_many('starved', 'r', batch_size => 2, dry_run => false);
SET client_min_messages = warning;
ALTER TABLE outbox.messages ADD CONSTRAINT refused CHECK (queue <> 'starved' OR replay_of IS NULL OR event_type NOT IN ('s3', 's4')) NOT VALID;
RESET client_min_messages;
SELECT event, done, skipped, remaining, why FROM outbox.replay_many('starved', error_code => 'CANCELLED', batch_size => 1, dry_run => false) ORDER BY event COLLATE "C";
SELECT event, done, skipped, remaining, why FROM outbox.replay_many('starved', error_code => 'CANCELLED', batch_size => 1, dry_run => false) ORDER BY event COLLATE "C";
ALTER TABLE outbox.messages DROP CONSTRAINT refused;
-- What they consist of: a row for each that was found.
SELECT outbox_id = t.id('s3') AS s3, event, last_error, outcome FROM outbox.replay_up_to('starved', 1, NULL, 'CANCELLED', NULL, NULL, false);
SELECT event, last_error, outcome FROM outbox.cancel_up_to('starved', 0, 'r', NULL, NULL, NULL, NULL, NULL);
SELECT t.try($$SELECT outbox.cancel_up_to('starved', -1, 'r', NULL, NULL, NULL, NULL, NULL)$$);
SELECT t.try($$SELECT outbox.replay_up_to('starved', 2147483647, NULL, NULL, NULL, NULL, NULL)$$);
SELECT sum(done) FROM outbox.purge('starved', 'starved');
SELECT t.lose($$queue = 'starved'$$);

-- purge asks for the name twice.
SELECT event, matching, done FROM outbox.purge('other') WHERE event LIKE 'c%' ORDER BY event COLLATE "C";
SELECT t.try($$SELECT outbox.purge('other', 'Other')$$);
SELECT count(*) AS pending FROM outbox.pending WHERE queue = 'other';
SELECT sum(done) AS done, sum(skipped) AS skipped FROM outbox.purge('other', 'other');
SELECT t.lose($$queue = 'other'$$);
SELECT DISTINCT error_message FROM outbox.dead_letters WHERE queue = 'other';

-- Ordered keys: what is cancelled in the middle, or as a whole, leaves the rest in order.
SELECT outbox.create_queue('f', ordering => 'fifo', on_dead_head => 'block');
SELECT count(*) FROM generate_series(1, 6) n, outbox.enqueue('f' || n, '1', 'f', partition_key => 'k');
SELECT sum(done) FROM unnest('{f2,f4}'::text[]) e, outbox.cancel_many('f', 'r', event_type => e, dry_run => false);
SELECT event_type, sequence_id FROM outbox.claim('w', 10, queues => '{f}');
SELECT t.delivered('f1', 'f3', 'f5', 'f6');
-- Dead heads: a replay takes its place; others get the key's next numbers, in the order of before.
SELECT count(*) FROM generate_series(7, 9) n, outbox.enqueue('f' || n, '1', 'f', partition_key => 'k');
SELECT event_type FROM outbox.claim('w', 1, queues => '{f}');
SELECT recorded FROM outbox.complete(t.id('f7'), t.token('f7'), 'w', 'FAILED', error_code => 'E');
SELECT event, done FROM outbox.replay_many('f', dry_run => false);
SELECT event, done FROM outbox.replay_many('f', error_code => 'CANCELLED', dry_run => false);
SELECT event_type, sequence_id FROM outbox.claim('w', 10, queues => '{f}');
-- A dead head that was acknowledged: it stays dead, and its key blocked, until the key is decided about as well.
SELECT created FROM unnest('{g1,g2}'::text[]) e, outbox.enqueue(e, '1', 'f', partition_key => 'g');
SELECT count(*) FROM outbox.claim('w', 1, queues => '{f}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'FAILED', error_code => 'E');
SELECT outbox.acknowledge_dead(t.id('g1'), 'never mind');
SELECT event, matching, done, skipped, remaining FROM outbox.replay_many('f', error_code => 'E', dry_run => false);
SELECT partition_key, outbox_id = t.id('g1') AS g1 FROM outbox.blocked_keys;
SELECT event_type FROM outbox.claim('w', 10, queues => '{f}');
SELECT outbox.unblock('f', 'g') = t.id('g1') AS g1;
SELECT event_type FROM outbox.claim('w', 10, queues => '{f}');
SELECT sum(done) FROM outbox.purge('f', 'f', force => true);
SELECT * FROM outbox.blocked_keys;
SELECT created FROM outbox.enqueue('f last', '1', 'f', partition_key => 'k');
SELECT count(*) AS settled FROM outbox.maintain() WHERE action = 'notified' AND object = 'f';
SELECT event_type FROM outbox.claim('w', 10, queues => '{f}');

-- A call that acts reads what it needs, and 10000 further. What it tells is then a lower bound, and that is said: they can
-- be repeated until nothing remains all the same. To look counts all.
SELECT outbox.create_queue('long');
SELECT count(*) FROM generate_series(1, 12100) n, outbox.enqueue(CASE WHEN n IN (1, 2, 12100) THEN 'few' ELSE 'many' END, to_jsonb(n), 'long');
SELECT event, matching, done, remaining, more FROM outbox.purge('long') ORDER BY event COLLATE "C";
BEGIN;
SELECT pg_stat_get_xact_tuples_returned('outbox.pending_pkey'::regclass) AS before \gset
SELECT event, matching, done, remaining, more FROM outbox.purge('long', 'long', batch_size => 10) ORDER BY event COLLATE "C";
SELECT pg_stat_get_xact_tuples_returned('outbox.pending_pkey'::regclass) - :before < 11500 AS bounded;
ROLLBACK;
-- The same where few match; and it looks on until one is left, or to the end.
BEGIN;
SELECT pg_stat_get_xact_tuples_returned('outbox.pending_pkey'::regclass) AS before \gset
SELECT event, matching, done, remaining, more FROM outbox.cancel_many('long', 'r', event_type => 'few', batch_size => 1, dry_run => false);
SELECT pg_stat_get_xact_tuples_returned('outbox.pending_pkey'::regclass) - :before < 11500 AS bounded;
ROLLBACK;
SELECT event, matching, done, remaining, more FROM outbox.cancel_many('long', 'r', event_type => 'few', batch_size => 2, dry_run => false);
SELECT event, matching, done, remaining, more FROM outbox.purge('long', 'long', batch_size => 10000) ORDER BY event COLLATE "C";
SELECT event, matching, done, remaining, more FROM outbox.purge('long', 'long', batch_size => 10000) ORDER BY event COLLATE "C";
SELECT event, matching, done, remaining, more FROM outbox.purge('long', 'long', batch_size => 10000) ORDER BY event COLLATE "C";
SELECT event, matching, done, remaining, more FROM outbox.replay_many('long', error_code => 'CANCELLED') ORDER BY event COLLATE "C";
BEGIN;
SELECT pg_stat_get_xact_tuples_returned('outbox.dead_pkey'::regclass) AS before \gset
SELECT event, matching, done, remaining, more FROM outbox.replay_many('long', error_code => 'CANCELLED', batch_size => 10, dry_run => false) ORDER BY event COLLATE "C";
SELECT pg_stat_get_xact_tuples_returned('outbox.dead_pkey'::regclass) - :before < 11500 AS bounded;
ROLLBACK;

-- A message for whose id there is no partition, because DEFAULT was detached, stops itself alone.
SELECT outbox.create_queue('astray');
SELECT created FROM outbox.enqueue('in time', '1', 'astray');
CREATE TABLE t.astray AS SELECT * FROM outbox.pending WHERE queue = 'astray';
UPDATE t.astray SET outbox_id = '00000000-0000-7000-8000-000000000001';
BEGIN;
INSERT INTO outbox.pending TABLE t.astray;
ALTER TABLE outbox.messages DETACH PARTITION outbox.messages_default;
ALTER TABLE outbox.attempts DETACH PARTITION outbox.attempts_default;
SELECT event, matching, done, remaining, more FROM outbox.purge('astray') ORDER BY event COLLATE "C";
SELECT event, matching, done, skipped, remaining, why FROM outbox.purge('astray', 'astray') ORDER BY event COLLATE "C";
INSERT INTO outbox.dead SELECT outbox_id, queue, now() FROM t.astray;
SELECT event, matching, done, skipped, why FROM outbox.replay_many('astray', error_code => 'CANCELLED', dry_run => false);
SELECT event, matching, done, skipped, why FROM outbox.replay_many('astray', dry_run => false);
ROLLBACK;
DROP TABLE t.astray;
SELECT sum(done) FROM outbox.purge('astray', 'astray');

-- The batches under them: item by item, in order.
SELECT count(*) FROM unnest('{x1,x2}'::text[]) e, outbox.enqueue(e, '1');
SELECT outbox_id = t.id('x1') AS x1, attempt_no, error FROM outbox.cancel_batch(ARRAY[t.id('x1'), NULL, t.id('x1'), '00000000-0000-7000-8000-000000000001'], 'r');
SELECT outbox_id = t.id('x1') AS x1, replay_id IS NOT NULL AS replayed, error FROM outbox.replay_batch(ARRAY[t.id('x1'), NULL, t.id('x1'), t.id('x2')], clock_timestamp() + interval '1 hour');
SELECT count(*) FROM outbox.cancel_batch('{}', 'r');
SELECT count(*) FROM outbox.replay_batch('{}');

-- Bad arguments are an error, also where nothing would be found, and whatever else is asked.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.cancel_many('nowhere', 'r')$$),
	($$SELECT outbox.replay_many('nowhere', dry_run => false)$$),
	($$SELECT outbox.purge('nowhere', 'nowhere')$$),
	($$SELECT outbox.cancel_many(NULL, 'r')$$),
	($$SELECT outbox.cancel_many('q', NULL, dry_run => false)$$),
	($$SELECT outbox.cancel_many('q', NULL)$$),
	($$SELECT outbox.cancel_many('q', '')$$),
	($$SELECT outbox.cancel_many('q', '', dry_run => false)$$),
	($$SELECT outbox.cancel_many('q', 'r', batch_size => 0)$$),
	($$SELECT outbox.replay_many('q', batch_size => -1)$$),
	($$SELECT outbox.replay_many('q', batch_size => NULL)$$),
	($$SELECT outbox.cancel_many('q', 'r', batch_size => 2147483647)$$),
	($$SELECT outbox.purge(NULL, 'q')$$),
	($$SELECT outbox.cancel_batch(NULL, 'r')$$),
	($$SELECT outbox.cancel_batch('{}', '')$$),
	($$SELECT outbox.cancel_batch('{}', 'r', NULL)$$),
	($$SELECT outbox.replay_batch('{{00000000-0000-7000-8000-000000000001}}'::uuid[][] || '{{00000000-0000-7000-8000-000000000001}}'::uuid[][])$$)) v(s);
-- To look is allowed where nothing may be written.
BEGIN READ ONLY;
SELECT (SELECT count(*) FROM outbox.cancel_many('q', 'r')) AS cancel, (SELECT count(*) FROM outbox.replay_many('q', error_code => 'CANCELLED')) AS replay, (SELECT count(*) FROM outbox.purge('q')) AS purge;
SELECT t.try(s) FROM unnest(ARRAY[$$SELECT outbox.cancel_many('q', 'r', event_type => 'none', dry_run => false)$$,
	$$SELECT outbox.replay_many('q', event_type => 'none', dry_run => false)$$, $$SELECT outbox.purge('starved', 'starved')$$]) s;
ROLLBACK;
-- As an operator, whose name is in the ledger; no other role may.
SELECT created FROM outbox.enqueue('y', '1', 'q');
BEGIN;
SET LOCAL ROLE outbox_operator;
SELECT sum(done) FROM outbox.cancel_many('q', 'r', event_type => 'y', dry_run => false);
SELECT sum(done) FROM outbox.replay_many('q', event_type => 'y', error_code => 'CANCELLED', dry_run => false);
RESET ROLE;
SELECT recorded_by FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'y';
ROLLBACK;
SELECT t.try('SET LOCAL ROLE ' || r || '; ' || s) FROM unnest('{outbox_readonly,outbox_executor}'::text[]) r,
	(VALUES ($$SELECT outbox.cancel_many('q', 'r')$$), ($$SELECT outbox.replay_many('q')$$), ($$SELECT outbox.purge('q')$$)) v(s);
SELECT severity, object, problem FROM outbox.check(true) WHERE severity = 'error';
