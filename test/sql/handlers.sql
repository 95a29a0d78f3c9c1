--
-- queues.handler: who may set one, who may claim beside it, what maintain() does with it where no
-- background worker is.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SET client_min_messages = warning;
DROP SCHEMA IF EXISTS "App" CASCADE;
DROP ROLE IF EXISTS regress_outbox_app, regress_outbox_other, regress_outbox_admin;
RESET client_min_messages;
CREATE ROLE regress_outbox_app IN ROLE outbox_ingest, outbox_executor;
CREATE ROLE regress_outbox_other;
CREATE ROLE regress_outbox_admin IN ROLE outbox_operator;
CREATE SCHEMA "App" AUTHORIZATION regress_outbox_app;
SET ROLE regress_outbox_app;
CREATE TABLE "App".effects (n serial, event_type text, seen text);
CREATE FUNCTION "App".note(message outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO "App".effects (event_type, seen) VALUES (message.event_type, message.payload::text); END $$;
CREATE FUNCTION "App".number(message outbox.claimed) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE FUNCTION "App".many(message outbox.claimed) RETURNS SETOF void LANGUAGE sql AS $$ $$;
CREATE FUNCTION "App".other(message jsonb) RETURNS void LANGUAGE sql AS $$ $$;
CREATE PROCEDURE "App".procedure(message outbox.claimed) LANGUAGE sql AS $$ $$;
RESET ROLE;

-- Setting one: it must exist, have the right form, and belong to a role that the caller is a member of.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.create_queue('x', handler => 'note')$$),
	($$SELECT outbox.create_queue('x', handler => 'a.b.c')$$),
	($$SELECT outbox.create_queue('x', handler => 'App.note')$$),
	($$SELECT outbox.create_queue('x', handler => '"App".nothing')$$),
	($$SELECT outbox.create_queue('x', handler => '"App".other')$$),
	($$SELECT outbox.create_queue('x', handler => '"App".number')$$),
	($$SELECT outbox.create_queue('x', handler => '"App".many')$$),
	($$SELECT outbox.create_queue('x', handler => '"App".procedure')$$),
	($$SELECT outbox.create_queue('x', handler => '"App".note; DROP TABLE t.known')$$)) v(s);
SET ROLE regress_outbox_admin;
SELECT outbox.create_queue('x');
SELECT outbox.create_queue('y', handler => '"App".note');
SELECT outbox.alter_queue('x', handler => '"App".note');
RESET ROLE;
GRANT regress_outbox_app TO regress_outbox_admin;
SET ROLE regress_outbox_admin;
SELECT outbox.alter_queue('x', handler => '"App".note', handler_timeout => '5 s');
RESET ROLE;
SELECT queue, handler, handler_timeout, handler_owner FROM outbox.queues ORDER BY 1;
SELECT t.try($$UPDATE outbox.queues SET handler_owner = NULL WHERE queue = 'x'$$);
SELECT outbox.alter_queue('x', handler => NULL);
SELECT handler FROM outbox.queues WHERE queue = 'x';

-- No other worker claims from it, and none waits for it.
SELECT created FROM outbox.enqueue('one', '{"n": 1}', 'x');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.claim('w', queues => '{x}')$$),
	($$SELECT outbox.claim('w', queues => '{default, x}', queue_weights => '{1, 1}')$$),
	($$SELECT outbox.claim('w', queues => '{x}', wait => '1 s')$$),
	($$SELECT outbox.complete_and_claim('w', '{}', '{}', '{}', queues => '{x}')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'two', '{}', 'x')$$)) v(s);
CALL outbox.wait_for_work('0', '{x}');
SELECT event_type FROM outbox.claim('w');
SELECT count(*) AS waits FROM outbox.pending WHERE lease_token IS NULL;
-- What was claimed before it was set can be reported.
SELECT outbox.alter_queue('x', handler => '');
SELECT handler IS NULL AND handler_owner IS NULL AS removed FROM outbox.queues WHERE queue = 'x';
SELECT event_type, payload FROM outbox.claim('w', queues => '{x}');
SELECT outbox.alter_queue('x', handler => '"App".note');
SELECT t.delivered('one');

-- check() knows one that cannot run.
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
ALTER FUNCTION "App".note(outbox.claimed) OWNER TO regress_outbox_other;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
ALTER FUNCTION "App".note(outbox.claimed) OWNER TO regress_outbox_app;
REVOKE EXECUTE ON FUNCTION "App".note(outbox.claimed) FROM PUBLIC, regress_outbox_app;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
ALTER FUNCTION "App".note(outbox.claimed) RENAME TO noted;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';

ALTER FUNCTION "App".noted(outbox.claimed) RENAME TO note;
GRANT EXECUTE ON FUNCTION "App".note(outbox.claimed) TO regress_outbox_app;

-- maintain() handles: what the handler did and the outcome are one transaction.
CREATE FUNCTION t.maintain() RETURNS TABLE (did text, what text, how text) LANGUAGE sql AS $$
	SELECT action, object, t.masked(detail) FROM outbox.maintain() WHERE action ~ 'message|handle' $$;
CREATE FUNCTION t.again() RETURNS void LANGUAGE sql AS $$
	UPDATE outbox.pending SET next_attempt_at = clock_timestamp() - interval '1 second' WHERE queue = 'x' $$;
SELECT event_type, created FROM unnest('{a,b,c}'::text[]) event_type, outbox.enqueue(event_type, '{"n": 2}', 'x');
SELECT * FROM t.maintain();
SELECT event_type, seen FROM "App".effects ORDER BY n;
SELECT message, no, state, worker_id, error_code, error_message FROM t.ledger WHERE message <> 'one' ORDER BY 1, 2;
SELECT * FROM t.maintain();
BEGIN;
SELECT created FROM outbox.enqueue('rolled back', '{}', 'x');
SELECT * FROM t.maintain();
ROLLBACK;
SELECT count(*) FROM "App".effects WHERE event_type = 'rolled back';
-- A message that this transaction has made is handled in it, too; not what it may not see.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT created FROM outbox.enqueue('strict', '{}', 'x');
SELECT * FROM t.maintain();
ROLLBACK;

-- What it gets.
SET ROLE regress_outbox_app;
CREATE FUNCTION "App".sees(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO "App".effects (event_type, seen) VALUES (m.event_type, format('%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s', m.queue, m.event_type, m.aggregate_type,
			m.aggregate_id, m.partition_key, m.sequence_id, m.idempotency_key, m.routing_key, m.priority, m.payload, m.headers, m.attempt_count, m.max_attempts,
			m.outbox_id = (SELECT p.outbox_id FROM outbox.pending p WHERE p.outbox_id = m.outbox_id)));
		INSERT INTO "App".effects (event_type, seen) VALUES (m.event_type, concat_ws('|', current_user, current_setting('search_path'), current_setting('lock_timeout'),
			current_setting('transaction_isolation'), m.payload_bytes, m.content_type));
	END $$;
RESET ROLE;
GRANT SELECT ON outbox.pending TO regress_outbox_app;
SELECT outbox.alter_queue('x', handler => '"App".sees');
TRUNCATE "App".effects;
SELECT created FROM outbox.enqueue('full', '{"p": 1}', 'x', 'order', '7', 'k', 'i', NULL, '{"h": 2}', 'r', 3, NULL, 4);
SELECT created FROM outbox.enqueue('bytes', queue => 'x', payload_bytes => '\x0102', content_type => 'application/x');
SET search_path = t, public;
SELECT * FROM t.maintain();
SHOW search_path;
RESET search_path;
SELECT event_type, seen FROM "App".effects ORDER BY n;

-- Errors undo its work. Class P8 is for good; others are tried again, up to the ceiling.
SET ROLE regress_outbox_app;
CREATE FUNCTION "App".fails(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO "App".effects (event_type, seen) VALUES (m.event_type, 'undone');
		IF m.event_type = 'fine' THEN RETURN; END IF;
		RAISE 'no %', m.event_type USING ERRCODE = m.payload ->> 'code';
	END $$;
RESET ROLE;
TRUNCATE "App".effects;
SELECT outbox.alter_queue('x', handler => '"App".fails', max_attempts => 2, backoff_jitter => 0);
SELECT count(*) FROM unnest('{P8000,P8ABC,P0001,40001,40P01,57014,22012}'::text[]) WITH ORDINALITY c(code, n), outbox.enqueue('e' || n, jsonb_build_object('code', code), 'x');
SELECT created FROM outbox.enqueue('fine', '{}', 'x');
SELECT * FROM t.maintain();
SELECT event_type, seen FROM "App".effects ORDER BY n;
SELECT message, no, state, worker_id, error_code, error_message FROM t.ledger WHERE message ~ '^e[0-9]|fine' ORDER BY 1, 2;
SELECT queue, due_unleased_count, leased_count, scheduled_count, dead_count FROM outbox.status WHERE queue = 'x';
SELECT t.again();
SELECT * FROM t.maintain();
SELECT message, no, state, error_code FROM t.ledger WHERE message ~ '^e[0-9]' AND no > 1 ORDER BY 1, 2;
SELECT count(*) FROM outbox.dead WHERE queue = 'x';

-- It cannot become somebody else, nor end the transaction, nor leave settings behind.
SET ROLE regress_outbox_app;
CREATE FUNCTION "App".runs(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN EXECUTE m.payload ->> 'sql'; INSERT INTO "App".effects (event_type, seen) VALUES (m.event_type, current_user); END $$;
RESET ROLE;
SELECT outbox.alter_queue('x', handler => '"App".runs', max_attempts => 1);
TRUNCATE "App".effects;
SELECT count(*) FROM unnest(ARRAY['SET ROLE outbox_owner', 'RESET ROLE', 'SET SESSION AUTHORIZATION outbox_owner', 'RESET SESSION AUTHORIZATION', 'SET LOCAL ROLE NONE',
	$$SELECT set_config('role', 'outbox_owner', false)$$, 'COMMIT', 'ROLLBACK', 'SAVEPOINT s', 'CREATE ROLE regress_outbox_x', 'SELECT * FROM outbox.queues',
	'DELETE FROM outbox.messages', 'DECLARE c CURSOR WITH HOLD FOR SELECT 1', $$SELECT set_config('search_path', '"App"', false), set_config('statement_timeout', '0', false)$$,
	'SELECT * FROM effects', 'SELECT * FROM outbox.maintain()']) WITH ORDINALITY u(s, n), outbox.enqueue('r' || lpad(n::text, 2, '0'), jsonb_build_object('sql', s), 'x');
SELECT * FROM t.maintain();
SELECT message, state, error_code, error_message FROM t.ledger WHERE message ~ '^r[0-9]' ORDER BY 1, 2;
SELECT event_type, seen FROM "App".effects ORDER BY event_type;
SHOW search_path;
SELECT current_user = session_user AS same_user;

-- One that cannot run costs no attempt: the messages wait.
SELECT outbox.alter_queue('x', handler => '"App".note', max_attempts => 20);
TRUNCATE "App".effects;
SELECT created FROM outbox.enqueue('waits', '{}', 'x');
ALTER FUNCTION "App".note(outbox.claimed) OWNER TO regress_outbox_other;
SELECT * FROM t.maintain();
ALTER FUNCTION "App".note(outbox.claimed) OWNER TO regress_outbox_app;
REVOKE EXECUTE ON FUNCTION "App".note(outbox.claimed) FROM regress_outbox_app;
SELECT * FROM t.maintain();
GRANT EXECUTE ON FUNCTION "App".note(outbox.claimed) TO regress_outbox_app;
ALTER FUNCTION "App".note(outbox.claimed) RENAME TO noted;
SELECT * FROM t.maintain();
SELECT attempt_count, release_count FROM outbox.pending WHERE outbox_id = t.id('waits');
ALTER FUNCTION "App".noted(outbox.claimed) RENAME TO note;
SELECT outbox.pause('x');
SELECT * FROM t.maintain();
SELECT outbox.resume('x');
SELECT * FROM t.maintain();
SELECT event_type, seen FROM "App".effects ORDER BY n;

-- A handler works with the outbox as anybody does; what it does with its own message undoes it.
SELECT outbox.create_queue('other'), outbox.create_queue('third');
SET ROLE regress_outbox_app;
CREATE FUNCTION "App".works(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE c record; done record;
	BEGIN
		FOR c IN SELECT * FROM outbox.claim('inner', 10, queues => '{other}') LOOP
			SELECT * INTO done FROM outbox.complete(c.outbox_id, c.lease_token, 'inner', 'DISPATCHED');
			INSERT INTO "App".effects (event_type, seen) VALUES (c.event_type, done.recorded);
		END LOOP;
		PERFORM outbox.enqueue('sent by ' || m.event_type, '{}', 'third');
	END $$;
RESET ROLE;
SELECT outbox.alter_queue('x', handler => '"App".works');
TRUNCATE "App".effects;
SELECT created FROM outbox.enqueue('o1', '{}', 'other');
SELECT created FROM outbox.enqueue('work', '{}', 'x');
SELECT * FROM t.maintain();
SELECT event_type, seen FROM "App".effects ORDER BY n;
SELECT queue, event_type FROM outbox.messages WHERE event_type ~ 'sent by';

-- Order: a key goes on behind its head, and what follows a failure is not tried.
SELECT outbox.create_queue('fifo', ordering => 'fifo', handler => '"App".fails', backoff_jitter => 0);
TRUNCATE "App".effects;
SELECT sequence_id FROM unnest('{fine,f1,fine,fine}'::text[], '{k,k,k,l}'::text[]) u(e, k), outbox.enqueue(e, '{"code": "22000"}', 'fifo', partition_key => k);
SELECT * FROM t.maintain();
SELECT event_type, count(*) FROM "App".effects GROUP BY 1;
SELECT partition_key, sequence_id, attempt_count, release_count, lease_token IS NULL AS free, held_back FROM outbox.pending WHERE queue = 'fifo' ORDER BY 1, 2;

-- At most 100 messages a call.
SELECT outbox.alter_queue('x', handler => '"App".note');
TRUNCATE "App".effects;
SELECT count(*) FROM generate_series(1, 120) n, outbox.enqueue('many' || n, '{}', 'x');
SELECT * FROM t.maintain();
SELECT * FROM t.maintain();
SELECT count(*) FROM "App".effects;

SET client_min_messages = warning;
DROP SCHEMA t, "App" CASCADE;
DROP OWNED BY regress_outbox_app, regress_outbox_other, regress_outbox_admin;
DROP ROLE regress_outbox_app, regress_outbox_other, regress_outbox_admin;
