--
-- Transactions: read-only ones, savepoints, rollback, isolation levels, all in one
-- session; no predicate locks. (More sessions: isolation specs; 2PC: prepared.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT created FROM outbox.enqueue('due', '1');
SELECT count(*) FROM (VALUES ('leased'), ('expired')) v(m), LATERAL outbox.enqueue_and_claim('w', m, '1');
SELECT t.expire('expired');
SELECT recorded FROM outbox.enqueue_and_claim('w', 'dead', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED');

-- Read only: 25006 from everything that writes, an answer from what does not.
BEGIN READ ONLY;
SAVEPOINT s;
SELECT created FROM outbox.enqueue('e', '1');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1}]')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1')$$),
	($$SELECT outbox.claim('w')$$),
	($$SELECT outbox.complete(t.id('leased'), t.token('leased'), 'w', 'DISPATCHED')$$),
	($$SELECT outbox.complete_batch('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')], '{DISPATCHED}')$$),
	($$SELECT outbox.complete_and_claim('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')], '{DISPATCHED}')$$),
	($$SELECT outbox.renew('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')])$$),
	($$SELECT outbox.release('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')])$$),
	($$SELECT outbox.repair_expired_leases()$$),
	($$SELECT outbox.create_queue('x')$$),
	($$SELECT outbox.alter_queue('default', lease => '1 s')$$),
	($$SELECT outbox.drop_queue('n')$$),
	($$SELECT outbox.pause('n')$$),
	($$SELECT outbox.resume('n')$$),
	($$SELECT outbox.cancel(t.id('due'), 'r')$$),
	($$SELECT outbox.replay(t.id('dead'))$$),
	($$SELECT outbox.maintain()$$),
	($$SELECT outbox.backoff('default', 1)$$),
	($$SELECT outbox.check()$$),
	($$SELECT outbox.prometheus()$$),
	($$SELECT outbox.reset_stats()$$),
	($$CALL outbox.wait_for_work('0')$$),
	($$SELECT outbox.state_diagram()$$),
	($$SELECT * FROM outbox.status$$)) v(s);
COMMIT;
SET default_transaction_read_only = on;
SELECT count(*) FROM outbox.claim('w');
\echo :SQLSTATE
RESET default_transaction_read_only;
SELECT message, state FROM t.pending;

-- Rolled back, nothing was said, claimed, completed, renewed, given back, repaired.
CREATE TABLE t.before AS SELECT * FROM outbox.pending;
BEGIN;
SELECT sequence_id FROM outbox.enqueue('gone', '1', 'n', partition_key => 'k', idempotency_key => 'k');
SELECT count(*) FROM outbox.claim('w2', 1);
SELECT error FROM outbox.renew('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')], '1 h');
SELECT error FROM outbox.release('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')]);
SELECT count(*) FROM outbox.repair_expired_leases();
SELECT outbox.cancel(t.id('due'), 'r', true);
SELECT outbox.replay(t.id('dead')) IS NOT NULL;
SELECT outbox.create_queue('gone');
ROLLBACK;
SELECT count(*) FROM (SELECT * FROM outbox.pending EXCEPT SELECT * FROM t.before) changed;
SELECT count(*) FROM outbox.pending;
SELECT count(*) FROM outbox.messages WHERE event_type = 'gone';
SELECT count(*) FROM outbox.attempts;
SELECT count(*) FROM outbox.sequences;
SELECT count(*) FROM outbox.idempotency_keys;
SELECT queue FROM outbox.queues ORDER BY 1;
SELECT sequence_id, created FROM outbox.enqueue('first', '1', 'n', partition_key => 'k', idempotency_key => 'k');

-- Savepoints: what was rolled back is undone, what was kept is kept.
BEGIN;
SELECT event_type FROM outbox.claim('w3', queues => '{n}');
SAVEPOINT s;
SELECT recorded FROM outbox.complete(t.id('first'), t.token('first'), 'w3', 'DISPATCHED');
SELECT sequence_id FROM outbox.enqueue('second', '1', 'n', partition_key => 'k');
ROLLBACK TO s;
SELECT message, state, claimed_by FROM t.pending WHERE message IN ('first', 'second');
SELECT recorded FROM outbox.complete(t.id('first'), t.token('first'), 'w3', 'RETRYABLE', retry_delay => '0');
SAVEPOINT s2;
SELECT event_type, attempt_count FROM outbox.claim('w4', queues => '{n}');
RELEASE s2;
SELECT recorded FROM outbox.complete(t.id('first'), t.token('first'), 'w4', 'DISPATCHED');
COMMIT;
SELECT message, no, state, worker_id FROM t.ledger WHERE message = 'first';
-- A lease of a rolled-back savepoint is no lease.
SELECT created FROM outbox.enqueue('sp', '1', 'n');
BEGIN;
SAVEPOINT s;
SELECT lease_token AS token FROM outbox.claim('w', queues => '{n}') \gset
ROLLBACK TO s;
SELECT t.try(format('SELECT outbox.complete(t.id(''sp''), %L, ''w'', ''DISPATCHED'')', :'token'));
SELECT event_type FROM outbox.claim('w', queues => '{n}');
ROLLBACK;
SELECT event_type FROM outbox.claim('w', queues => '{n}');

-- A message's whole life in one transaction, under each isolation level; later
-- statements see what earlier ones did. No predicate lock is taken.
CREATE FUNCTION t.siread() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.mode = 'SIReadLock' AND c.relnamespace = 'outbox'::regnamespace
$$;
CREATE FUNCTION t.life() RETURNS TABLE (level text, duplicate boolean, claimed bigint, retried outbox.attempt_state, renewed text, attempts bigint, replayed boolean, predicate_locks bigint) LANGUAGE plpgsql AS $$
DECLARE
	id uuid;
	token uuid;
BEGIN
	level := current_setting('transaction_isolation');
	PERFORM outbox.create_queue(level, ordering => 'numbered');
	SELECT e.outbox_id INTO id FROM outbox.enqueue('life', to_jsonb(level), level, partition_key => 'life', idempotency_key => level) e;
	SELECT NOT e.created AND e.outbox_id = id INTO duplicate
	FROM outbox.enqueue('life', to_jsonb(level), level, partition_key => 'life', idempotency_key => level) e;
	SELECT c.lease_token INTO token FROM outbox.claim('w', 1, queues => ARRAY[level]) c WHERE c.outbox_id = id;
	SELECT c.recorded INTO retried FROM outbox.complete(id, token, 'w', 'RETRYABLE', retry_delay => '0') c;
	SELECT count(*), min(c.lease_token::text) INTO claimed, token FROM outbox.claim('w', 1, queues => ARRAY[level]) c WHERE c.outbox_id = id;
	SELECT coalesce(r.error, 'yes') INTO renewed FROM outbox.renew('w', ARRAY[id], ARRAY[token], '1 h') r;
	PERFORM FROM outbox.release('w', ARRAY[id], ARRAY[token]);
	PERFORM FROM outbox.repair_expired_leases(queues => ARRAY[level]);
	PERFORM outbox.cancel(id, 'r');
	replayed := outbox.replay(id) IS NOT NULL;
	predicate_locks := t.siread();
	SELECT count(*) INTO attempts FROM outbox.attempts WHERE outbox_id = id;
	RETURN NEXT;
END
$$;
BEGIN ISOLATION LEVEL READ UNCOMMITTED;
SELECT * FROM t.life();
COMMIT;
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT * FROM t.life();
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM t.life();
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM t.life();
COMMIT;
SELECT payload #>> '{}' AS level, count(*), count(*) FILTER (WHERE replay_of IS NOT NULL) AS replays FROM outbox.messages WHERE event_type = 'life' GROUP BY 1 ORDER BY 1;

-- The clock is the wall clock: a lease may run out within a transaction, and a claim
-- made late in a long one gets its whole lease.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT now() IS NOT NULL AS began;
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'short', '1', lease => '1 microsecond') \gset
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'id', :'token'));
SELECT claimed_at > now() AS later_than_the_transaction, lease_expires_at - claimed_at AS lease FROM outbox.pending WHERE outbox_id = :'id';
SELECT created FROM outbox.enqueue('soon', '1', deliver_at => clock_timestamp() + interval '1 microsecond');
SELECT event_type FROM outbox.claim('w', 100) WHERE event_type = 'soon';
ROLLBACK;

-- Called from functions of other kinds: STABLE ones, security definers, triggers of
-- temporary tables, cursors, DO blocks that commit.
CREATE FUNCTION t.definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$SELECT count(*) FROM outbox.claim('w', 1)$$;
SELECT t.definer();
CREATE FUNCTION t.stable() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
	PERFORM outbox.enqueue('from stable', '1');
	RETURN EXISTS (SELECT 1 FROM outbox.messages WHERE event_type = 'from stable');
END
$$;
SELECT t.stable() AS seen_within;
SELECT count(*) FROM outbox.messages WHERE event_type = 'from stable';
DO $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		PERFORM outbox.enqueue('in a loop', to_jsonb(i));
		IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END
$$;
SELECT payload FROM outbox.messages WHERE event_type = 'in a loop' ORDER BY 1;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT event_type FROM outbox.claim('held', 1);
COMMIT;
SELECT count(*) FROM outbox.pending WHERE claimed_by = 'held';
FETCH ALL FROM c;
CLOSE c;

-- COMMIT AND CHAIN, and many transactions in one message.
BEGIN;
SELECT created FROM outbox.enqueue('chain 1', '1');
COMMIT AND CHAIN;
SELECT created FROM outbox.enqueue('chain 2', '1');
ROLLBACK AND CHAIN;
SELECT created FROM outbox.enqueue('chain 3', '1');
COMMIT;
SELECT event_type FROM outbox.messages WHERE event_type LIKE 'chain%' ORDER BY 1;
SELECT created FROM outbox.enqueue('one string', '1')\; SELECT created FROM outbox.enqueue('one string', '2')\; SELECT 1/0;
SELECT count(*) FROM outbox.messages WHERE event_type = 'one string';
-- (the setting has another name from 16 on)
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT created FROM outbox.enqueue('parallel', '1');
SELECT count(*) > 0 AS claimed FROM outbox.claim('w', 100);
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

-- Errors at every place leave the session usable, and no lock or lease behind.
SELECT t.try(s) FROM (VALUES
	($$SELECT count(*) FROM generate_series(1, 1000) g, outbox.enqueue('err', to_jsonb(g), priority => g % 17)$$),
	($$SELECT outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.pending WHERE claimed_by IS NOT NULL UNION ALL SELECT NULL FROM outbox.claim('', 1)$$),
	($$SELECT 1 / count(*) FROM outbox.claim('w', 1, queues => '{n}') WHERE false$$)) v(s);
SELECT count(*) FROM outbox.messages WHERE event_type = 'err';
SELECT locktype, mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('advisory', 'tuple');
