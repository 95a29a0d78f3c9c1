--
-- Rights at work: each role does its own job and nothing else, whoever is a member
-- of none can do nothing (B28, PgQue). The whole matrix is in test/pgtap.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_nobody, regress_outbox_ingest, regress_outbox_executor, regress_outbox_operator, regress_outbox_readonly, regress_outbox_auditor;
RESET client_min_messages;
CREATE ROLE regress_outbox_nobody;
CREATE ROLE regress_outbox_ingest IN ROLE outbox_ingest;
CREATE ROLE regress_outbox_executor IN ROLE outbox_executor;
CREATE ROLE regress_outbox_operator IN ROLE outbox_operator;
CREATE ROLE regress_outbox_readonly IN ROLE outbox_readonly;
CREATE ROLE regress_outbox_auditor IN ROLE outbox_auditor;

-- B28: what PUBLIC, so to say, may do: nothing; also in the partitions made since.
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'outbox'::regnamespace AND has_function_privilege('regress_outbox_nobody', p.oid, 'EXECUTE');
SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND has_table_privilege('regress_outbox_nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT has_schema_privilege('regress_outbox_nobody', 'outbox', 'USAGE, CREATE') AS schema, has_type_privilege('regress_outbox_nobody', 'outbox.attempt_state', 'USAGE') AS type;

-- Every call and every kind of access by every role.
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
CREATE FUNCTION pg_temp.all_calls(as_role text) RETURNS TABLE (what text, answer text) LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	EXECUTE 'SET LOCAL ROLE ' || as_role;
	FOR what, call IN VALUES
		('enqueue', $v$SELECT outbox.enqueue('e', '1')$v$),
		('enqueue_batch', $v$SELECT outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1}]')$v$),
		('enqueue_and_claim', $v$SELECT outbox.enqueue_and_claim('w', 'e', '1')$v$),
		('claim', $v$SELECT outbox.claim('w', 1)$v$),
		('complete', $v$SELECT outbox.complete('00000000-0000-7000-8000-000000000000', '00000000-0000-7000-8000-000000000000', 'w', 'DISPATCHED')$v$),
		('complete_batch', $v$SELECT outbox.complete_batch('w', '{}', '{}', '{}')$v$),
		('complete_and_claim', $v$SELECT outbox.complete_and_claim('w', '{}', '{}', '{}')$v$),
		('renew', $v$SELECT outbox.renew('w', '{}', '{}')$v$),
		('release', $v$SELECT outbox.release('w', '{}', '{}')$v$),
		('repair_expired_leases', $v$SELECT outbox.repair_expired_leases()$v$),
		('create_queue', $v$SELECT outbox.create_queue('made by ' || current_user)$v$),
		('alter_queue', $v$SELECT outbox.alter_queue('default', lease => '1 min')$v$),
		('pause', $v$SELECT outbox.pause('default')$v$),
		('resume', $v$SELECT outbox.resume('default')$v$),
		('drop_queue', $v$SELECT outbox.drop_queue('made by ' || current_user)$v$),
		('cancel', $v$SELECT outbox.cancel('00000000-0000-7000-8000-000000000000', 'r')$v$),
		('cancel_batch', $v$SELECT outbox.cancel_batch('{}', 'r')$v$),
		('cancel_many', $v$SELECT outbox.cancel_many('default', 'r')$v$),
		('purge', $v$SELECT outbox.purge('default')$v$),
		('replay_batch', $v$SELECT outbox.replay_batch('{}')$v$),
		('replay_many', $v$SELECT outbox.replay_many('default')$v$),
		('explain', $v$SELECT outbox.explain('00000000-0000-7000-8000-000000000000')$v$),
		('break_lease', $v$SELECT outbox.break_lease('00000000-0000-7000-8000-000000000000', 'r')$v$),
		('reschedule', $v$SELECT outbox.reschedule('00000000-0000-7000-8000-000000000000', now())$v$),
		('unblock', $v$SELECT outbox.unblock('default', 'k')$v$),
		('acknowledge_dead', $v$SELECT outbox.acknowledge_dead('00000000-0000-7000-8000-000000000000', 'r')$v$),
		('replay', $v$SELECT outbox.replay('00000000-0000-7000-8000-000000000000')$v$),
		('take_number', $v$SELECT outbox.take_number('default', 'k')$v$),
		('lost_messages', $v$SELECT outbox.lost_messages()$v$),
		('message_events', $v$SELECT outbox.message_events('00000000-0000-7000-8000-000000000000')$v$),
		('restore_pending', $v$SELECT outbox.restore_pending()$v$),
		('set_retention', $v$SELECT outbox.set_retention(NULL)$v$),
		('backoff', $v$SELECT outbox.backoff('default', 1)$v$),
		('maintain', $v$SELECT outbox.maintain()$v$),
		('check', $v$SELECT outbox.check()$v$),
		('wait_for_work', $v$CALL outbox.wait_for_work('0')$v$),
		('reset_stats', $v$SELECT outbox.reset_stats()$v$),
		('prometheus', $v$SELECT outbox.prometheus()$v$),
		('queue_stats', $v$SELECT outbox.queue_stats()$v$),
		('worker_status', $v$SELECT outbox.worker_status()$v$),
		('state_diagram', $v$SELECT outbox.state_diagram()$v$),
		('key_digest', $v$SELECT outbox.key_digest('a', 'b')$v$),
		('append_only', $v$SELECT outbox.append_only()$v$),
		('merge_queue', $v$SELECT outbox.merge_queue()$v$),
		('pending_changed', $v$SELECT outbox.pending_changed()$v$),
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
INSERT INTO t.answers SELECT 'nobody', * FROM pg_temp.all_calls('regress_outbox_nobody');
INSERT INTO t.answers SELECT 'ingest', * FROM pg_temp.all_calls('regress_outbox_ingest');
INSERT INTO t.answers SELECT 'executor', * FROM pg_temp.all_calls('regress_outbox_executor');
INSERT INTO t.answers SELECT 'operator', * FROM pg_temp.all_calls('regress_outbox_operator');
INSERT INTO t.answers SELECT 'readonly', * FROM pg_temp.all_calls('regress_outbox_readonly');
INSERT INTO t.answers SELECT 'auditor', * FROM pg_temp.all_calls('regress_outbox_auditor');
-- '' is 42501; P7002, P7005 and the like are the function's own answer.
SELECT what, max(nullif(answer, '42501')) FILTER (WHERE role = 'nobody') AS nobody, max(nullif(answer, '42501')) FILTER (WHERE role = 'ingest') AS ingest,
	max(nullif(answer, '42501')) FILTER (WHERE role = 'executor') AS executor, max(nullif(answer, '42501')) FILTER (WHERE role = 'operator') AS operator,
	max(nullif(answer, '42501')) FILTER (WHERE role = 'readonly') AS readonly, max(nullif(answer, '42501')) FILTER (WHERE role = 'auditor') AS auditor
FROM t.answers GROUP BY 1 ORDER BY 1;

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
DROP ROLE regress_outbox_nobody, regress_outbox_ingest, regress_outbox_executor, regress_outbox_operator, regress_outbox_readonly, regress_outbox_auditor;
