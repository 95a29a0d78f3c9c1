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

SET client_min_messages = warning;
DROP SCHEMA t, "App" CASCADE;
DROP OWNED BY regress_outbox_app, regress_outbox_other, regress_outbox_admin;
DROP ROLE regress_outbox_app, regress_outbox_other, regress_outbox_admin;
