--
-- Rights at work: each role does its own job and nothing else, whoever is a member
-- of none can do nothing (B28, PgQue). The whole matrix is in test/pgtap.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_nobody, regress_outbox_ingest, regress_outbox_executor, regress_outbox_operator, regress_outbox_readonly, regress_outbox_auditor, regress_outbox_privacy;
RESET client_min_messages;
CREATE ROLE regress_outbox_nobody;
CREATE ROLE regress_outbox_ingest IN ROLE outbox_ingest;
CREATE ROLE regress_outbox_executor IN ROLE outbox_executor;
CREATE ROLE regress_outbox_operator IN ROLE outbox_operator;
CREATE ROLE regress_outbox_readonly IN ROLE outbox_readonly;
CREATE ROLE regress_outbox_auditor IN ROLE outbox_auditor;
CREATE ROLE regress_outbox_privacy IN ROLE outbox_privacy;

-- B28: what PUBLIC, so to say, may do: nothing; also in the partitions made since.
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'outbox'::regnamespace AND has_function_privilege('regress_outbox_nobody', p.oid, 'EXECUTE');
SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND has_table_privilege('regress_outbox_nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT has_schema_privilege('regress_outbox_nobody', 'outbox', 'USAGE, CREATE') AS schema, has_type_privilege('regress_outbox_nobody', 'outbox.attempt_state', 'USAGE') AS type;

-- Every kind of access by every role.
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
CREATE FUNCTION pg_temp.all_accesses(as_role text) RETURNS TABLE (what text, answer text) LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	EXECUTE 'SET LOCAL ROLE ' || as_role;
	FOR what, call IN VALUES
		('SELECT queues', $v$SELECT * FROM outbox.queues$v$),
		('SELECT messages', $v$SELECT * FROM outbox.messages$v$),
		('SELECT pending', $v$SELECT * FROM outbox.pending$v$),
		('SELECT attempts', $v$SELECT * FROM outbox.attempts$v$),
		('SELECT status', $v$SELECT * FROM outbox.status$v$),
		('SELECT stats', $v$SELECT * FROM outbox.stats$v$),
		('SELECT workers', $v$SELECT * FROM outbox.workers$v$),
		('SELECT operational_status', $v$SELECT * FROM outbox.operational_status$v$),
		('SELECT dead_letters', $v$SELECT * FROM outbox.dead_letters$v$),
		('SELECT sequences', $v$SELECT * FROM outbox.sequences$v$),
		('SELECT messages_default', $v$SELECT * FROM outbox.messages_default$v$),
		('SELECT idempotency_keys', $v$SELECT * FROM outbox.idempotency_keys$v$),
		('SELECT key_numbers', $v$SELECT * FROM outbox.key_numbers$v$),
		('SELECT replays', $v$SELECT * FROM outbox.replays$v$),
		('SELECT retired_numbers', $v$SELECT * FROM outbox.retired_numbers$v$),
		('INSERT messages', $v$INSERT INTO outbox.messages DEFAULT VALUES$v$),
		('INSERT attempts', $v$INSERT INTO outbox.attempts DEFAULT VALUES$v$),
		('INSERT pending', $v$INSERT INTO outbox.pending (outbox_id, queue) VALUES ('00000000-0000-7000-8000-000000000000', 'default')$v$),
		('INSERT queues', $v$INSERT INTO outbox.queues (queue) VALUES ('x')$v$),
		('UPDATE pending', $v$UPDATE outbox.pending SET priority = 0$v$),
		('UPDATE queues', $v$UPDATE outbox.queues SET paused = false$v$),
		('DELETE pending', $v$DELETE FROM outbox.pending$v$),
		('DELETE attempts', $v$DELETE FROM outbox.attempts$v$),
		('TRUNCATE pending', $v$TRUNCATE outbox.pending$v$),
		('TRUNCATE idempotency_keys', $v$TRUNCATE outbox.idempotency_keys$v$),
		('LOCK pending', $v$LOCK TABLE outbox.pending IN SHARE MODE$v$),
		('SELECT FOR UPDATE', $v$SELECT * FROM outbox.pending FOR UPDATE$v$),
		('CREATE in the schema', $v$CREATE FUNCTION outbox.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'$v$),
		('DROP EXTENSION', $v$DROP EXTENSION outbox$v$)
	LOOP
		answer := pg_temp.try(call);
		RETURN NEXT;
	END LOOP;
	RESET ROLE;
END
$$;
CREATE TABLE t.answers (role text, what text, answer text);
GRANT USAGE ON SCHEMA t TO PUBLIC;
INSERT INTO t.answers SELECT 'nobody', * FROM pg_temp.all_accesses('regress_outbox_nobody');
INSERT INTO t.answers SELECT 'ingest', * FROM pg_temp.all_accesses('regress_outbox_ingest');
INSERT INTO t.answers SELECT 'executor', * FROM pg_temp.all_accesses('regress_outbox_executor');
INSERT INTO t.answers SELECT 'operator', * FROM pg_temp.all_accesses('regress_outbox_operator');
INSERT INTO t.answers SELECT 'readonly', * FROM pg_temp.all_accesses('regress_outbox_readonly');
INSERT INTO t.answers SELECT 'auditor', * FROM pg_temp.all_accesses('regress_outbox_auditor');
-- '' is 42501.
SELECT what, max(nullif(answer, '42501')) FILTER (WHERE role = 'nobody') AS nobody, max(nullif(answer, '42501')) FILTER (WHERE role = 'ingest') AS ingest,
	max(nullif(answer, '42501')) FILTER (WHERE role = 'executor') AS executor, max(nullif(answer, '42501')) FILTER (WHERE role = 'operator') AS operator,
	max(nullif(answer, '42501')) FILTER (WHERE role = 'readonly') AS readonly, max(nullif(answer, '42501')) FILTER (WHERE role = 'auditor') AS auditor
FROM t.answers GROUP BY 1 ORDER BY 1;

-- Every call of calls.inc, first by each role, undone, then for the next one: 42501 if and only if the role has no
-- EXECUTE. enqueue_and_claim asks for that of enqueue and of claim.
\set calls `cat "$PG_ABS_SRCDIR/sql/calls.inc"`
ALTER FUNCTION t.id SECURITY DEFINER;
ALTER FUNCTION t.token SECURITY DEFINER;
CREATE FUNCTION t.answer(who text, call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SET LOCAL ROLE ' || who;
	EXECUTE call;
	RAISE SQLSTATE '00001';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
CREATE TABLE t.calls (function text, role text, answer text, may boolean);
CREATE PROCEDURE t.make(calls text) LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	FOREACH call IN ARRAY regexp_split_to_array(calls, '\n') LOOP
		INSERT INTO t.calls SELECT proname, rolname, t.answer(rolname, call), has_function_privilege(rolname, p.oid, 'EXECUTE')
		FROM pg_proc p, pg_roles WHERE pronamespace = 'outbox'::regnamespace AND proname = substring(call FROM 'outbox\.(\w+)\(') AND rolname ~ '^regress_outbox_';
		COMMIT;
		PERFORM t.try(call);
		COMMIT;
	END LOOP;
END
$$;
CALL t.make(:'calls');
SELECT function, role, answer FROM t.calls WHERE (answer = '42501') = may ORDER BY 1, 2;
SELECT oid::regprocedure AS without_a_call FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND prorettype <> 'trigger'::regtype AND proname NOT IN (SELECT function FROM t.calls);

-- At the top level the same, with the name of what is refused.
SET ROLE regress_outbox_ingest;
SELECT outbox_id IS NOT NULL AS id, created FROM outbox.enqueue('mine', '1');
SELECT * FROM outbox.claim('w');
SELECT * FROM outbox.messages;
SET ROLE regress_outbox_executor;
SELECT event_type FROM outbox.claim('w', 100) WHERE event_type = 'mine';
SELECT * FROM outbox.enqueue('e', '1');
SELECT * FROM outbox.replay('00000000-0000-7000-8000-000000000000');
SET ROLE regress_outbox_readonly;
SELECT event_type FROM outbox.messages WHERE event_type = 'mine';
SELECT * FROM outbox.sequences;
SET ROLE regress_outbox_nobody;
SELECT * FROM outbox.enqueue('e', '1');
SELECT 'DISPATCHED'::outbox.attempt_state;
RESET ROLE;

-- Nobody is a member of the owner.
SELECT rolname FROM pg_roles WHERE rolname ~ '^(regress_)?outbox_' AND rolname <> 'outbox_owner' AND pg_has_role(oid, 'outbox_owner', 'MEMBER');
DROP ROLE regress_outbox_nobody, regress_outbox_ingest, regress_outbox_executor, regress_outbox_operator, regress_outbox_readonly, regress_outbox_auditor, regress_outbox_privacy;
