--
-- A hostile caller who has EXECUTE gains nothing: functions, operators, tables,
-- types and casts of the caller's own, ahead in search_path or in pg_temp, are never
-- used; what runs with the owner's rights is security-restricted; and the caller is
-- the caller again afterwards.
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_evil;
RESET client_min_messages;
CREATE ROLE regress_outbox_evil IN ROLE outbox_ingest, outbox_executor, outbox_operator;
SELECT outbox.create_queue('n', ordering => 'numbered', max_attempts => 2);
CREATE TABLE t.caught (who text, what text);
GRANT USAGE ON SCHEMA t TO PUBLIC;
GRANT INSERT, SELECT ON t.caught TO PUBLIC;
CREATE SCHEMA evil AUTHORIZATION regress_outbox_evil;

SET ROLE regress_outbox_evil;
CREATE FUNCTION evil.catch(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO t.caught VALUES (current_user, what)';
-- Functions that an extension may call without a schema.
DO $$
DECLARE
	f record;
BEGIN
	FOR f IN
		SELECT DISTINCT p.proname, pg_get_function_identity_arguments(p.oid) AS args, format_type(p.prorettype, NULL) AS result
		FROM pg_catalog.pg_proc p
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0 AND NOT proretset
			AND proname IN ('clock_timestamp', 'now', 'num_nulls', 'octet_length', 'length', 'gen_random_uuid', 'uuid_eq', 'texteq', 'text_lt', 'timestamptz_gt', 'format', 'quote_ident',
				'coalesce', 'concat', 'current_setting', 'set_config', 'pg_notify', 'md5', 'sha256', 'int4eq', 'int8eq', 'int4pl', 'hashtext', 'pg_get_expr', 'jsonb_typeof', 'to_jsonb')
			AND prorettype NOT IN ('anyelement'::regtype, 'internal'::regtype, 'cstring'::regtype, 'void'::regtype)
	LOOP
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS ''BEGIN PERFORM evil.catch(''''%s''''); RETURN NULL; END''', f.proname, f.args, f.result, f.proname);
	END LOOP;
END
$$;
-- Operators on the types of the tables, each a trap that says yes.
DO $$
DECLARE
	o record;
BEGIN
	FOR o IN SELECT op, ty FROM (VALUES ('='), ('<>'), ('<'), ('<='), ('>'), ('>=')) a(op), (VALUES ('text'), ('uuid'), ('timestamptz'), ('int4'), ('int8'), ('int2'), ('bytea'), ('interval'), ('boolean'), ('jsonb'), ('name'), ('oid')) b(ty) LOOP
		EXECUTE format('CREATE OR REPLACE FUNCTION evil.trap(%1$s, %1$s) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN PERFORM evil.catch(''''operator on %1$s''''); RETURN true; END''', o.ty);
		EXECUTE format('CREATE OPERATOR evil.%1$s (LEFTARG = %2$s, RIGHTARG = %2$s, FUNCTION = evil.trap)', o.op, o.ty);
	END LOOP;
	CREATE FUNCTION evil.add(timestamptz, interval) RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN PERFORM evil.catch(''plus''); RETURN ''infinity''; END';
	CREATE OPERATOR evil.+ (LEFTARG = timestamptz, RIGHTARG = interval, FUNCTION = evil.add);
	CREATE FUNCTION evil.add(int, int) RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM evil.catch(''plus''); RETURN 0; END';
	CREATE OPERATOR evil.+ (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.add);
END
$$;
-- Tables and types of the same names, there and in pg_temp.
CREATE TABLE evil.queues (queue text PRIMARY KEY, max_attempts int, lease interval);
CREATE TABLE evil.messages (outbox_id uuid);
CREATE TABLE evil.pending (outbox_id uuid);
CREATE TABLE evil.attempts (outbox_id uuid);
CREATE TEMP TABLE queues (queue text, max_attempts int);
CREATE TEMP TABLE messages (outbox_id uuid);
CREATE TEMP TABLE pending (outbox_id uuid);
CREATE TEMP TABLE attempts (outbox_id uuid);
CREATE TEMP TABLE pg_class (oid oid);
CREATE TEMP TABLE pg_proc (oid oid);
CREATE TEMP TABLE pg_inherits (inhrelid oid);
CREATE TYPE evil.attempt_state AS ENUM ('FAILED');
CREATE TYPE pg_temp.attempt_state AS ENUM ('FAILED');
CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false);
CREATE DOMAIN evil.uuid AS pg_catalog.uuid CHECK (false);
CREATE DOMAIN evil.jsonb AS pg_catalog.jsonb CHECK (false);

-- Every function, with all of that in front of pg_catalog.
SET search_path = pg_temp, evil, pg_catalog;
SELECT outbox_id AS id, sequence_id, created FROM outbox.enqueue('e1', '{"v": 1}', 'n', 'type', 'agg', 'key', 'once') \gset
\echo :sequence_id :created
SELECT created FROM outbox.enqueue('e1', '{"v": 1}', 'n', 'type', 'agg', 'key', 'once');
SELECT ordinality, sequence_id, created FROM outbox.enqueue_batch('n', '[{"event_type": "e2", "payload": 1, "partition_key": "key", "deliver_at": "2020-01-01T00:00:00Z", "event_id": "00000000-0000-4000-8000-000000000001"}]');
SELECT created, lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'e3', '1', 'n');
SELECT outbox_id AS id, lease_token AS token, event_type FROM outbox.claim('w', 1, queues => '{n}') \gset
\echo :event_type
SELECT error FROM outbox.renew('w', ARRAY[:'id'::pg_catalog.uuid], ARRAY[:'token'::pg_catalog.uuid], '1 hour');
SELECT error FROM outbox.release('w', ARRAY[:'id'::pg_catalog.uuid], ARRAY[:'token'::pg_catalog.uuid]);
SELECT outbox_id AS id, lease_token AS token, event_type FROM outbox.claim('w', 1, queues => '{n}') \gset
\echo :event_type
SELECT attempt_no, recorded FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE', retry_delay => '0');
SELECT outbox_id AS id, lease_token AS token FROM outbox.claim('w', 1, queues => '{n}') \gset
SELECT attempt_no, recorded, error FROM outbox.complete_batch('w', ARRAY[:'id'::pg_catalog.uuid], ARRAY[:'token'::pg_catalog.uuid], '{FAILED}');
SELECT outbox_id AS id4 FROM outbox.enqueue('e4', '1') \gset
SELECT outbox.cancel(:'id4', 'r');
SELECT outbox.replay(:'id4') IS NOT NULL AS replayed;
SELECT count(*) FROM outbox.repair_expired_leases();
SELECT outbox.create_queue('evil queue'), outbox.alter_queue('evil queue', max_attempts => 1), outbox.pause('evil queue'), outbox.resume('evil queue'), outbox.backoff('evil queue', 3), outbox.drop_queue('evil queue');
SELECT count(*) OPERATOR(pg_catalog.>) 0 AS upkeep FROM outbox.maintain();
SELECT * FROM outbox.check() WHERE severity OPERATOR(pg_catalog.=) 'error';
SELECT outbox.state_diagram() OPERATOR(pg_catalog.~) '^digraph' AS diagram;
SELECT count(*) OPERATOR(pg_catalog.>) 0 AS rows FROM outbox.status;
SELECT count(*) OPERATOR(pg_catalog.>) 0 AS rows FROM outbox.operational_status;
SELECT count(*) OPERATOR(pg_catalog.>) 0 AS rows FROM outbox.dead_letters;
SELECT count(*) OPERATOR(pg_catalog.>) 0 AS rows FROM outbox.stats;
SELECT count(*) OPERATOR(pg_catalog.>) 0 AS rows FROM outbox.workers;
SELECT outbox.prometheus() OPERATOR(pg_catalog.~) '^# HELP' AS metrics;
SELECT current_user, session_user OPERATOR(pg_catalog.<>) current_user AS set_role;
RESET search_path;
DROP TABLE pg_temp.pg_class, pg_temp.pg_proc, pg_temp.pg_inherits, pg_temp.queues, pg_temp.messages, pg_temp.pending, pg_temp.attempts;
RESET ROLE;
SELECT who, what, count(*) FROM t.caught GROUP BY 1, 2 ORDER BY 1, 2;
SELECT message, no, state, worker_id, error_code FROM t.ledger;
-- Nothing of the partitions made just now is the caller's.
SELECT count(*) > 0 AS partitions, bool_and(relowner = 'outbox_owner'::regrole) AS owned, bool_and(relacl IS NULL) AS no_grants FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '_p[0-9]';

-- The same with the traps in pg_temp only, and a cast of the caller's own.
SET ROLE regress_outbox_evil;
CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN PERFORM evil.catch(''pg_temp''); RETURN NULL; END';
CREATE FUNCTION pg_temp.queues() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM evil.catch(''pg_temp''); RETURN 1; END';
CREATE TYPE evil.pair AS (a int);
CREATE FUNCTION evil.to_jsonb(evil.pair) RETURNS pg_catalog.jsonb LANGUAGE plpgsql AS 'BEGIN INSERT INTO t.caught VALUES (current_user, ''cast, in the caller''''s own rights''); RETURN ''{}''; END';
CREATE CAST (evil.pair AS pg_catalog.jsonb) WITH FUNCTION evil.to_jsonb(evil.pair) AS IMPLICIT;
SELECT created FROM outbox.enqueue('cast', ROW(1)::evil.pair);
SELECT event_type, payload FROM outbox.claim('w') ORDER BY 1;
RESET ROLE;
SELECT who, what FROM t.caught;
TRUNCATE t.caught;

-- Code of users on the tables (a CHECK, a default, an index) would run as outbox_owner, and
-- functions in SQL by the names that a caller's search_path finds: none of it runs, whatever the
-- session has made of it before.
GRANT USAGE ON SCHEMA evil, t TO PUBLIC;
SET ROLE regress_outbox_evil;
CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM evil.catch('lower');
	RETURN 'the caller''s';
END
$$;
RESET ROLE;
CREATE FUNCTION t.norm(x text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower(x)';
CREATE DOMAIN t.code AS text CHECK (t.norm(VALUE) <> '');
-- All that writes, under the names of the caller's: what is refused, and how often.
CREATE FUNCTION t.call_all() RETURNS TABLE (outcome text, calls bigint) LANGUAGE plpgsql SET search_path = evil, pg_catalog AS $$
DECLARE
	id pg_catalog.uuid := (SELECT m.outbox_id FROM outbox.messages m WHERE m.event_type OPERATOR(pg_catalog.=) 'e3');
	token pg_catalog.uuid := (SELECT p.lease_token FROM outbox.pending p WHERE p.outbox_id OPERATOR(pg_catalog.=) id);
	call pg_catalog.text;
	outcomes pg_catalog.text[];
BEGIN
	FOREACH call IN ARRAY ARRAY[
		$q$SELECT outbox.create_queue('new')$q$, $q$SELECT outbox.pause('n')$q$,
		$q$SELECT outbox.enqueue('x', '1', 'n', partition_key => 'x', idempotency_key => 'x')$q$,
		$q$SELECT outbox.enqueue_batch('n', '[{"event_type": "x", "payload": 1}]')$q$,
		$q$SELECT outbox.enqueue_and_claim('w', 'x', '1', 'n')$q$,
		$q$SELECT outbox.claim('w', 100)$q$, $q$SELECT outbox.repair_expired_leases()$q$,
		pg_catalog.format('SELECT outbox.complete(%L, %L, ''w'', ''FAILED'')', id, token),
		pg_catalog.format('SELECT outbox.renew(''w'', ARRAY[%L::pg_catalog.uuid], ARRAY[%L::pg_catalog.uuid])', id, token),
		pg_catalog.format('SELECT outbox.cancel(%L, ''r'', true)', id),
		$q$SELECT outbox.maintain()$q$]
	LOOP
		BEGIN
			EXECUTE call;
			RAISE EXCEPTION USING ERRCODE = 'UNDO0';
		EXCEPTION
			WHEN SQLSTATE 'UNDO0' THEN
				NULL;
			WHEN OTHERS THEN
				outcomes := pg_catalog.array_append(outcomes, pg_catalog.concat_ws(' ', SQLSTATE, SQLERRM));
		END;
	END LOOP;
	RETURN QUERY SELECT o, pg_catalog.count(*) FROM pg_catalog.unnest(outcomes) o GROUP BY o ORDER BY o COLLATE "C";
END
$$;
SELECT * FROM t.call_all();
\c -
TRUNCATE t.caught;
DO $$
DECLARE
	i record;
BEGIN
	FOR i IN VALUES ('messages_default', 'event_type'), ('pending', 'queue'), ('attempts_default', 'worker_id'), ('idempotency_keys', 'queue'),
		('key_numbers', 'queue'), ('replays', 'outbox_id::text'), ('queues', 'queue') LOOP
		EXECUTE format('CREATE INDEX mine_%1$s ON outbox.%1$s (t.norm(%2$s)) WHERE t.norm(%2$s) <> ''''', i.column1, i.column2);
	END LOOP;
END
$$;
SELECT * FROM t.call_all();
-- Planning is enough to have them written out.
\c -
SET ROLE regress_outbox_evil;
SET search_path = evil, pg_catalog;
EXPLAIN (COSTS OFF) SELECT FROM outbox.pending;
\echo :SQLSTATE
RESET ROLE;
SELECT * FROM t.call_all();
RESET search_path;
DROP INDEX outbox.mine_messages_default, outbox.mine_pending, outbox.mine_attempts_default, outbox.mine_idempotency_keys, outbox.mine_key_numbers, outbox.mine_replays, outbox.mine_queues;
ALTER TABLE outbox.messages ADD code t.code DEFAULT 'X';
ALTER TABLE outbox.pending ADD CHECK (t.norm(queue) <> '');
\c -
SET search_path = evil, pg_catalog;
SELECT 'x'::t.code;
TRUNCATE t.caught;
SELECT * FROM t.call_all();
RESET search_path;
SELECT who, what, count(*) FROM t.caught GROUP BY 1, 2 ORDER BY 1, 2;
ALTER TABLE outbox.messages DROP code;
ALTER TABLE outbox.pending DROP CONSTRAINT pending_queue_check;
SELECT * FROM t.call_all();

-- After an error inside, the caller is the caller, with its own search_path and
-- settings, at the top level and in a subtransaction.
SET ROLE regress_outbox_evil;
SET search_path = evil, public;
SELECT * FROM outbox.enqueue('e', '1', 'nowhere');
SELECT current_user, current_setting('search_path');
DO $$
BEGIN
	PERFORM outbox.enqueue('e', '1', 'nowhere');
EXCEPTION WHEN SQLSTATE 'P7004' THEN
	RAISE NOTICE '% %', current_user, current_setting('search_path');
END
$$;
CREATE TEMP TABLE still_allowed ();
SET work_mem = '5MB';
SELECT current_user, current_setting('search_path'), current_setting('lock_timeout');
-- Settings of the caller's that reach into a function change nothing of what it does.
SET default_tablespace = 'pg_default';
SET default_transaction_deferrable = on;
SET array_nulls = off;
SET extra_float_digits = -15;
SET intervalstyle = 'sql_standard';
SET datestyle = 'SQL, DMY';
SET timezone = 'Asia/Kathmandu';
SET standard_conforming_strings = off;
SET lc_time = 'C';
SELECT created FROM outbox.enqueue('settings', '{"at": "2020-01-01"}', 'n');
SELECT count(*) > 0 AS claimed FROM outbox.claim('w', 10, queues => '{n}');
RESET ALL;
RESET ROLE;

-- The trigger functions on somebody else's table: EXECUTE is not given, and to the
-- superuser they do no harm.
SET ROLE regress_outbox_evil;
CREATE TABLE evil.mine (a int);
CREATE TRIGGER x BEFORE UPDATE ON evil.mine FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
\echo :SQLSTATE
CREATE TRIGGER x BEFORE INSERT ON evil.mine FOR EACH ROW EXECUTE FUNCTION outbox.merge_queue();
\echo :SQLSTATE
RESET ROLE;
CREATE TRIGGER x BEFORE INSERT ON evil.mine FOR EACH ROW EXECUTE FUNCTION outbox.merge_queue();
INSERT INTO evil.mine VALUES (1);
\echo :SQLSTATE
DROP TRIGGER x ON evil.mine;
CREATE TRIGGER x AFTER INSERT ON evil.mine FOR EACH STATEMENT EXECUTE FUNCTION outbox.merge_queue();
INSERT INTO evil.mine VALUES (1);
\echo :SQLSTATE
DROP TRIGGER x ON evil.mine;
CREATE TRIGGER x BEFORE UPDATE ON evil.mine FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
INSERT INTO evil.mine VALUES (1);
UPDATE evil.mine SET a = 2;
\echo :SQLSTATE

-- The settings are the superuser's, also when they are set before the library is
-- loaded, in a session of its own.
SET ROLE regress_outbox_evil;
SET outbox.idempotency_window = '1 hour';
\echo :SQLSTATE
SET outbox.partition_interval = '1 hour';
\echo :SQLSTATE
SET outbox.of_my_own = 'x';
\echo :SQLSTATE
\c -
SET ROLE regress_outbox_evil;
SET outbox.idempotency_window = '1 hour';
SELECT created FROM outbox.enqueue('fresh session', '1', idempotency_key => 'k');
SHOW outbox.idempotency_window;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA evil CASCADE;
DROP OWNED BY regress_outbox_evil;
DROP ROLE regress_outbox_evil;
