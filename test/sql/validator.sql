--
-- queues.validator and take_number: who is asked, as whom, and what its answer does.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SET client_min_messages = warning;
DROP SCHEMA IF EXISTS "Rules" CASCADE;
DROP ROLE IF EXISTS regress_outbox_ruler, regress_outbox_ruled, regress_outbox_admin;
RESET client_min_messages;
CREATE ROLE regress_outbox_ruler;
CREATE ROLE regress_outbox_ruled;
CREATE ROLE regress_outbox_admin IN ROLE outbox_operator;
CREATE SCHEMA "Rules" AUTHORIZATION regress_outbox_ruler;
SET ROLE regress_outbox_ruler;
CREATE FUNCTION "Rules".amount(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN (payload ->> 'amount')::int > 0 THEN NULL ELSE 'amount must be above zero, by ' || current_user END
$$;
CREATE FUNCTION "Rules".sees(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s %s %s %s %s', payload, headers, coalesce(routing_key, 'none'), current_user, current_setting('search_path'))
$$;
CREATE FUNCTION "Rules".strict(payload jsonb, headers jsonb, routing_key text) RETURNS text STRICT LANGUAGE sql AS $$ SELECT 'asked' $$;
CREATE FUNCTION "Rules".raises(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN RAISE 'by itself' USING ERRCODE = 'P0999'; END $$;
CREATE FUNCTION "Rules".writes(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN EXECUTE 'SET ROLE outbox_owner'; RETURN NULL; END $$;
CREATE FUNCTION "Rules".number(payload jsonb, headers jsonb, routing_key text) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE FUNCTION "Rules".many(payload jsonb, headers jsonb, routing_key text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT 'x' $$;
RESET ROLE;

-- Setting one: it must exist, have the right form, and belong to a role that the caller is a member of.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.create_queue('x', validator => 'amount')$$),
	($$SELECT outbox.create_queue('x', validator => 'a.b.c')$$),
	($$SELECT outbox.create_queue('x', validator => '"Rules".')$$),
	($$SELECT outbox.create_queue('x', validator => 'Rules.amount')$$),
	($$SELECT outbox.create_queue('x', validator => '"Rules".nothing')$$),
	($$SELECT outbox.create_queue('x', validator => '"Rules".number')$$),
	($$SELECT outbox.create_queue('x', validator => '"Rules".many')$$),
	($$SELECT outbox.create_queue('x', validator => '"Rules".amount; DROP TABLE t.known')$$)) v(s);
SET ROLE regress_outbox_admin;
SELECT outbox.create_queue('x');
SELECT outbox.create_queue('y', validator => '"Rules".amount');
SELECT outbox.alter_queue('x', validator => '"Rules".amount');
RESET ROLE;
GRANT regress_outbox_ruler TO regress_outbox_admin;
SET ROLE regress_outbox_admin;
SELECT outbox.alter_queue('x', validator => '"Rules".amount');
RESET ROLE;
SELECT queue, validator, validator_owner FROM outbox.queues ORDER BY 1;

-- What it says refuses the message, in the producer's face, and nothing was written.
SET ROLE outbox_ingest;
SELECT created FROM outbox.enqueue('good', '{"amount": 1}', 'x');
SELECT outbox.enqueue('bad', '{"amount": 0}', 'x', idempotency_key => 'k');
SELECT outbox.enqueue_batch('x', '[{"event_type": "good", "payload": {"amount": 1}}, {"event_type": "bad", "payload": {"amount": -1}}]');
RESET ROLE;
SELECT outbox.enqueue_and_claim('w', 'bad', '{"amount": 0}', 'x');
SELECT event_type, count(*) FROM outbox.messages GROUP BY 1;
SELECT count(*) AS keys FROM outbox.idempotency_keys;
-- The key is free: a valid message takes it.
SELECT created FROM outbox.enqueue('good', '{"amount": 2}', 'x', idempotency_key => 'k');
-- Other queues are not asked.
SELECT created FROM outbox.enqueue('bad', '{"amount": 0}');
-- An error of its own is the producer's error.
SELECT outbox.alter_queue('x', validator => '"Rules".raises');
SELECT t.try($$SELECT outbox.enqueue('e', '{}', 'x')$$);

-- What it is given, as whom it runs, where it looks names up.
SELECT outbox.alter_queue('x', validator => '"Rules".sees');
SET search_path = t, public;
SELECT outbox.enqueue('e', '{"p": 1}', 'x', headers => '{"h": 2}', routing_key => 'r');
SELECT outbox.enqueue('e', '[]', 'x');
SHOW search_path;
SELECT current_user = session_user AS same_user;
RESET search_path;
-- It cannot become somebody else.
SELECT outbox.alter_queue('x', validator => '"Rules".writes');
SELECT t.try($$SELECT outbox.enqueue('e', '{}', 'x')$$);
-- A strict one is not asked without a routing key.
SELECT outbox.alter_queue('x', validator => '"Rules".strict');
SELECT created FROM outbox.enqueue('e', '{}', 'x');
SELECT outbox.enqueue('e', '{}', 'x', routing_key => 'r');

-- A replay was let in once: it is not asked about again.
SELECT outbox.alter_queue('x', validator => '"Rules".amount');
SELECT outbox.cancel(t.id('e'), 'no');
SELECT outbox.replay(t.id('e')) IS NOT NULL AS replayed;

-- One that is gone lets nothing in, and check() says so.
ALTER FUNCTION "Rules".amount(jsonb, jsonb, text) RENAME TO sum;
SELECT t.try($$SELECT outbox.enqueue('e', '{"amount": 1}', 'x')$$);
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
-- NULL keeps it, the empty string removes it.
SELECT outbox.alter_queue('x', validator => NULL);
SELECT validator FROM outbox.queues WHERE queue = 'x';
SELECT outbox.alter_queue('x', validator => '');
SELECT validator IS NULL AS removed FROM outbox.queues WHERE queue = 'x';
SELECT created FROM outbox.enqueue('e2', '{"amount": 0}', 'x');
SELECT t.try($$INSERT INTO outbox.queues (queue, validator) VALUES ('y', '')$$);

-- Producers choose what it is given: an operator cannot have them run a superuser's helper.
CREATE FUNCTION public.helper(payload jsonb, headers jsonb, command text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN EXECUTE command; RETURN NULL; END $$;
CREATE FUNCTION public.definer(payload jsonb, headers jsonb, command text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN EXECUTE command; RETURN NULL; END $$;
SET ROLE regress_outbox_admin;
SELECT outbox.alter_queue('x', validator => 'public.helper');
SELECT outbox.alter_queue('x', validator => 'public.definer');
SELECT outbox.create_queue('y', validator => 'public.helper');
RESET ROLE;
-- Nor can a function that it may name become one.
CREATE FUNCTION t.sent() RETURNS SETOF text LANGUAGE sql AS $t$
	SELECT t.try($$SELECT outbox.enqueue('owner', '{"amount": 1}', 'x', routing_key => 'ALTER ROLE outbox_ingest CREATEROLE')$$) $t$;
ALTER FUNCTION "Rules".sum(jsonb, jsonb, text) RENAME TO amount;
SET ROLE regress_outbox_admin;
SELECT outbox.alter_queue('x', validator => '"Rules".amount');
RESET ROLE;
SELECT t.sent();
ALTER FUNCTION "Rules".amount(jsonb, jsonb, text) OWNER TO regress_outbox_ruled;
SELECT t.sent();
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
ALTER FUNCTION "Rules".amount(jsonb, jsonb, text) OWNER TO regress_outbox_ruler;
SELECT t.sent();
DROP FUNCTION "Rules".amount(jsonb, jsonb, text);
SELECT t.sent();
ALTER FUNCTION public.helper(jsonb, jsonb, text) SET SCHEMA "Rules";
ALTER FUNCTION "Rules".helper(jsonb, jsonb, text) RENAME TO amount;
SELECT t.sent();
SELECT rolcreaterole FROM pg_roles WHERE rolname = 'outbox_ingest';
-- What its owner makes of it is the owner's affair.
DROP FUNCTION "Rules".amount(jsonb, jsonb, text);
SET ROLE regress_outbox_ruler;
CREATE FUNCTION "Rules".amount(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$ SELECT 'one' $$;
RESET ROLE;
SELECT t.sent();
SET ROLE regress_outbox_ruler;
CREATE OR REPLACE FUNCTION "Rules".amount(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$ SELECT 'two' $$;
RESET ROLE;
SELECT t.sent();
-- Whoever sets it by hand has to name its owner, too. The owner's name counts.
SELECT t.try($$UPDATE outbox.queues SET validator_owner = NULL WHERE queue = 'x'$$);
ALTER ROLE regress_outbox_ruler RENAME TO regress_outbox_ruling;
SELECT t.sent();
SELECT outbox.alter_queue('x', validator => '"Rules".amount');
SELECT t.sent();
ALTER ROLE regress_outbox_ruling RENAME TO regress_outbox_ruler;
SELECT outbox.alter_queue('x', validator => '');
SELECT validator_owner IS NULL AS removed FROM outbox.queues WHERE queue = 'x';
DROP FUNCTION public.definer(jsonb, jsonb, text);

-- take_number: a number that no message bears.
SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT outbox.take_number('n', 'k');
SELECT sequence_id FROM outbox.enqueue('n1', '1', 'n', partition_key => 'k');
SELECT outbox.take_number('n', 'k'), outbox.take_number('n', 'k'), outbox.take_number('n', 'other');
SELECT sequence_id FROM outbox.enqueue('n2', '1', 'n', partition_key => 'k');
BEGIN;
SELECT outbox.take_number('n', 'k');
ROLLBACK;
SELECT sequence_id FROM outbox.enqueue('n3', '1', 'n', partition_key => 'k');
SELECT partition_key, next_sequence_id FROM outbox.sequences WHERE queue = 'n' ORDER BY 1;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.take_number('x', 'k')$$),
	($$SELECT outbox.take_number('nowhere', 'k')$$),
	($$SELECT outbox.take_number(NULL, 'k')$$),
	($$SELECT outbox.take_number('n', NULL)$$)) v(s);

SET client_min_messages = warning;
DROP SCHEMA t, "Rules" CASCADE;
DROP ROLE regress_outbox_ruler, regress_outbox_ruled, regress_outbox_admin;
