--
-- PREPARE TRANSACTION with the outbox in it (max_prepared_transactions > 0 is
-- needed): messages appear with COMMIT PREPARED, and what a prepared transaction
-- holds is met by others as if it were open.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

\set SHOW_CONTEXT never
SELECT outbox.create_queue('n', ordering => 'numbered'), outbox.create_queue('m', ordering => 'numbered'), outbox.create_queue('open');
SELECT count(*) FROM (VALUES ('held'), ('lost')) v(m), LATERAL outbox.enqueue_and_claim('w', m, '1');
SELECT created FROM outbox.enqueue('due', '1');
SELECT t.id('held') AS held, t.token('held') AS held_token, t.id('due') AS due, t.id('lost') AS lost \gset

-- Enqueued and prepared: that is allowed, though a NOTIFY of the caller's own would
-- not be; and not there yet.
BEGIN;
SELECT outbox_id AS prepared, sequence_id FROM outbox.enqueue('prepared', '1', 'n', partition_key => 'k', idempotency_key => 'x') \gset
PREPARE TRANSACTION 'regress_outbox_1';
\echo :SQLSTATE :sequence_id
SELECT count(*) FROM outbox.messages WHERE event_type = 'prepared';
SELECT * FROM outbox.claim('w', queues => '{n}');
-- The same key waits for its end (lock_timeout applies), so does the same partition
-- key; another does not.
SET lock_timeout = '10ms';
SELECT created FROM outbox.enqueue('waits', '1', 'n', idempotency_key => 'x');
\echo :SQLSTATE
SELECT created FROM outbox.enqueue('waits', '1', 'n', partition_key => 'k');
\echo :SQLSTATE
SELECT sequence_id, created FROM outbox.enqueue('free', '1', 'n', partition_key => 'other', idempotency_key => 'y');
SELECT created FROM outbox.enqueue('free', '1', 'n');
-- B12 (agno): the same keys in another queue or of another aggregate are other keys.
SELECT sequence_id, created FROM outbox.enqueue('free', '1', 'm', partition_key => 'k', idempotency_key => 'x');
SELECT created FROM outbox.enqueue('free', '1', 'n', aggregate_id => 'other', idempotency_key => 'x');
-- Its queue is not dropped: messages are pending, though not committed.
SELECT t.try($$SELECT outbox.drop_queue('n')$$);
RESET lock_timeout;
COMMIT PREPARED 'regress_outbox_1';
SELECT outbox_id = :'prepared' AS the_first, sequence_id, created FROM outbox.enqueue('again', '1', 'n', partition_key => 'k', idempotency_key => 'x');
SELECT sequence_id FROM outbox.enqueue('next', '1', 'n', partition_key => 'k');
SELECT event_type, sequence_id FROM outbox.claim('w', queues => '{n}') ORDER BY event_type, sequence_id;

-- Rolled back: the key is free, the number unused.
BEGIN;
SELECT sequence_id FROM outbox.enqueue('gone', '1', 'n', partition_key => 'k', idempotency_key => 'z');
PREPARE TRANSACTION 'regress_outbox_2';
ROLLBACK PREPARED 'regress_outbox_2';
SELECT sequence_id, created FROM outbox.enqueue('kept', '1', 'n', partition_key => 'k', idempotency_key => 'z');

-- An open producer's queue: refused while it is open, whatever has been committed.
BEGIN;
SELECT created FROM outbox.enqueue('open', '1', 'open');
PREPARE TRANSACTION 'regress_outbox_3';
SET lock_timeout = '10ms';
SELECT outbox.drop_queue('open');
\echo :SQLSTATE
RESET lock_timeout;
ROLLBACK PREPARED 'regress_outbox_3';
SELECT outbox.drop_queue('open');

-- B12 (agno): an application's own advisory locks have nothing to do with ours.
BEGIN;
SELECT count(pg_advisory_xact_lock(g)) FROM generate_series(-10, 100) g;
SELECT count(pg_advisory_xact_lock(0, g)) FROM generate_series(-10, 100) g;
SELECT count(pg_advisory_xact_lock(hashtext(k))), count(pg_advisory_xact_lock(hashtextextended(k, 0))) FROM (VALUES ('k'), ('n'), ('m'), ('default')) v(k);
PREPARE TRANSACTION 'regress_outbox_a';
SET lock_timeout = '10ms';
SELECT e.created FROM generate_series(1, 50) g, LATERAL outbox.enqueue('free', to_jsonb(g), 'm', partition_key => 'a' || g, idempotency_key => 'a' || g) e GROUP BY 1;
SELECT outbox.pause('m'), outbox.resume('m'), outbox.create_queue('made'), outbox.drop_queue('made');
RESET lock_timeout;
ROLLBACK PREPARED 'regress_outbox_a';

-- A row that another transaction holds: claim and repair pass it over, renew and
-- release say 55P03, cancel and complete wait for it.
SELECT t.expire('lost');
BEGIN;
SELECT error FROM outbox.renew('w', ARRAY[:'held']::uuid[], ARRAY[:'held_token']::uuid[], '1 h');
SELECT event_type FROM outbox.claim('w2', 1) WHERE outbox_id = :'due' OR event_type = 'lost';
SELECT event_type FROM outbox.claim('w2', 2) WHERE outbox_id = :'due' OR event_type = 'lost';
PREPARE TRANSACTION 'regress_outbox_4';
SELECT * FROM outbox.claim('w3');
SELECT * FROM outbox.repair_expired_leases();
SELECT lease_expires_at, error FROM outbox.renew('w', ARRAY[:'held']::uuid[], ARRAY[:'held_token']::uuid[], '1 h');
SELECT next_attempt_at, error FROM outbox.release('w', ARRAY[:'held']::uuid[], ARRAY[:'held_token']::uuid[]);
SET lock_timeout = '10ms';
SELECT outbox.cancel(:'due', 'r');
\echo :SQLSTATE
SELECT recorded FROM outbox.complete(:'held', :'held_token', 'w', 'DISPATCHED');
\echo :SQLSTATE
-- A token that is known to be stale is refused before any lock.
SELECT t.try(format('SELECT outbox.complete(%L, gen_random_uuid(), ''w'', ''DISPATCHED'')', :'held'));
SELECT error FROM outbox.complete_batch('w', ARRAY[:'held']::uuid[], ARRAY[gen_random_uuid()], '{DISPATCHED}');
RESET lock_timeout;
ROLLBACK PREPARED 'regress_outbox_4';
SELECT recorded FROM outbox.complete(:'held', :'held_token', 'w', 'DISPATCHED');
SELECT event_type FROM outbox.claim('w3') ORDER BY 1;

-- Completed and prepared, in the worker's own business transaction: both or neither.
CREATE TABLE t.delivered (id uuid);
BEGIN;
INSERT INTO t.delivered VALUES (:'due');
SELECT recorded FROM outbox.complete(:'due', (SELECT lease_token FROM outbox.pending WHERE outbox_id = :'due'), 'w3', 'DISPATCHED');
PREPARE TRANSACTION 'regress_outbox_5';
SELECT count(*) FROM t.delivered;
SELECT count(*) FROM outbox.attempts WHERE outbox_id = :'due';
COMMIT PREPARED 'regress_outbox_5';
SELECT count(*) FROM t.delivered;
SELECT state FROM outbox.attempts WHERE outbox_id = :'due';
