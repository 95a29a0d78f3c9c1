--
-- check: nothing on a clean database, but for a warning that no background worker
-- runs; each thing that is broken on purpose is reported, naming the object. All in
-- transactions that are rolled back.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers

SELECT * FROM outbox.check();
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT created FROM outbox.enqueue('e', '1');
SELECT * FROM outbox.check() WHERE severity = 'error';

-- What check says of a statement's effect. The names of dated leaves hold a date.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_other;
RESET client_min_messages;
CREATE ROLE regress_outbox_other;
SELECT 'messages' || substr(tableoid::regclass::text, 16) AS leaf, 'attempts' || substr(tableoid::regclass::text, 16) AS attempts_leaf FROM outbox.messages \gset
SELECT set_config('t.leaf', :'leaf', false) = :'leaf' AS set, set_config('t.attempts_leaf', :'attempts_leaf', false) = :'attempts_leaf' AS set;
CREATE FUNCTION t.noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION t.after(statements text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	found text[];
BEGIN
	BEGIN
		EXECUTE replace(replace(statements, 'ATTEMPTS_LEAF', current_setting('t.attempts_leaf')), 'MESSAGES_LEAF', current_setting('t.leaf'));
		found := array(SELECT t.masked(format('%s | %s | %s', severity, object, problem)) FROM outbox.check() WHERE severity = 'error');
		RAISE EXCEPTION 'undo' USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	RETURN NEXT '> ' || t.masked(statements);
	RETURN QUERY SELECT '   ' || unnest(CASE WHEN found = '{}' THEN '{nothing}' ELSE found END);
END
$$;
\pset format unaligned
\pset tuples_only on

-- Append-only triggers that are missing, disabled, not ALWAYS, or made toothless.
SELECT t.after(s) FROM (VALUES
	('ALTER TABLE outbox.messages DISABLE TRIGGER append_only'),
	('ALTER TABLE outbox.attempts DISABLE TRIGGER ALL'),
	('ALTER TABLE outbox.attempts ENABLE TRIGGER append_only_truncate'),
	('ALTER TABLE outbox.attempts ENABLE REPLICA TRIGGER append_only'),
	('ALTER TABLE outbox.attempts_default DISABLE TRIGGER append_only_leaf; ALTER TABLE outbox.attempts_default DISABLE TRIGGER append_only'),
	('ALTER TABLE outbox.ATTEMPTS_LEAF DISABLE TRIGGER append_only_leaf; ALTER TABLE outbox.ATTEMPTS_LEAF DISABLE TRIGGER append_only'),
	('ALTER TABLE outbox.MESSAGES_LEAF DISABLE TRIGGER append_only_truncate'),
	('ALTER TABLE outbox.pending DISABLE TRIGGER append_only_truncate'),
	('DROP TRIGGER append_only_truncate ON outbox.MESSAGES_LEAF'),
	('ALTER EXTENSION outbox DROP FUNCTION outbox.append_only(); DROP TRIGGER append_only_truncate ON outbox.messages'),
	('DROP TRIGGER append_only_truncate ON outbox.MESSAGES_LEAF; CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.MESSAGES_LEAF FOR EACH STATEMENT EXECUTE FUNCTION t.noop(); ALTER TABLE outbox.MESSAGES_LEAF ENABLE ALWAYS TRIGGER append_only_truncate'),
	('ALTER TABLE outbox.queues DISABLE TRIGGER merge_queue')) v(s);
-- An archived (detached) leaf that can be changed.
SELECT t.after(s) FROM (VALUES
	('ALTER TABLE outbox.messages DETACH PARTITION outbox.MESSAGES_LEAF; ALTER TABLE outbox.attempts DETACH PARTITION outbox.ATTEMPTS_LEAF'),
	('ALTER TABLE outbox.messages DETACH PARTITION outbox.MESSAGES_LEAF; ALTER TABLE outbox.attempts DETACH PARTITION outbox.ATTEMPTS_LEAF; DROP TRIGGER append_only_leaf ON outbox.ATTEMPTS_LEAF')) v(s);
-- A partition made by hand: no indexes, no TRUNCATE trigger, no counterpart.
SELECT t.after(s) FROM (VALUES
	($$CREATE TABLE outbox.messages_hand PARTITION OF outbox.messages FOR VALUES FROM ('fffffff0-0000-0000-0000-000000000000') TO ('fffffff1-0000-0000-0000-000000000000')$$),
	($$CREATE TABLE outbox.attempts_hand PARTITION OF outbox.attempts FOR VALUES FROM ('fffffff0-0000-0000-0000-000000000000') TO ('fffffff1-0000-0000-0000-000000000000')$$)) v(s);
-- Foreign triggers, rules, row level security.
SELECT t.after(s) FROM (VALUES
	('CREATE TRIGGER mine AFTER INSERT ON outbox.pending FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE TRIGGER mine AFTER INSERT ON outbox.MESSAGES_LEAF FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE TRIGGER mine AFTER INSERT ON outbox.messages FOR EACH STATEMENT EXECUTE FUNCTION t.noop()'),
	('CREATE TRIGGER mine AFTER INSERT ON outbox.queues FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE TABLE t.f (id uuid REFERENCES outbox.pending)'),
	('CREATE RULE mine AS ON INSERT TO outbox.pending DO ALSO NOTHING'),
	('CREATE RULE mine AS ON DELETE TO outbox.messages DO INSTEAD NOTHING'),
	('ALTER TABLE outbox.pending ENABLE ROW LEVEL SECURITY'),
	('ALTER TABLE outbox.ATTEMPTS_LEAF ENABLE ROW LEVEL SECURITY')) v(s);
-- Write grants, on tables and columns; anything for PUBLIC; other owners.
SELECT t.after(s) FROM (VALUES
	('GRANT INSERT ON outbox.pending TO outbox_executor'),
	('GRANT UPDATE, DELETE ON outbox.MESSAGES_LEAF TO regress_outbox_other'),
	('GRANT TRUNCATE ON outbox.queues TO outbox_operator'),
	('GRANT TRIGGER ON outbox.attempts TO regress_outbox_other'),
	('GRANT UPDATE (payload) ON outbox.messages TO regress_outbox_other'),
	('GRANT SELECT (payload) ON outbox.messages TO PUBLIC'),
	('GRANT INSERT ON outbox.dead_letters TO regress_outbox_other'),
	('GRANT SELECT ON outbox.status TO PUBLIC'),
	('GRANT EXECUTE ON FUNCTION outbox.pause(text) TO PUBLIC'),
	('GRANT USAGE ON SCHEMA outbox TO PUBLIC'),
	('GRANT CREATE ON SCHEMA outbox TO regress_outbox_other'),
	('GRANT USAGE ON TYPE outbox.attempt_state TO PUBLIC'),
	('GRANT outbox_owner TO regress_outbox_other'),
	('ALTER TABLE outbox.pending OWNER TO regress_outbox_other'),
	('ALTER FUNCTION outbox.pause(text) OWNER TO regress_outbox_other'),
	('ALTER SCHEMA outbox OWNER TO regress_outbox_other'),
	('ALTER ROLE outbox_owner LOGIN'),
	('ALTER ROLE outbox_owner SUPERUSER'),
	('ALTER ROLE outbox_ingest LOGIN'),
	('ALTER ROLE outbox_executor BYPASSRLS')) v(s);
-- A SELECT grant to a role is the owner's own business.
SELECT t.after('GRANT SELECT ON outbox.messages TO regress_outbox_other');
-- Indexes and constraints that the guarantees rest on.
SELECT t.after(s) FROM (VALUES
	('ALTER TABLE outbox.MESSAGES_LEAF DROP CONSTRAINT ' || current_setting('t.leaf') || '_pkey'),
	('DROP INDEX outbox.ATTEMPTS_LEAF_one_terminal_per_outbox'),
	('DROP INDEX outbox.ATTEMPTS_LEAF_failed'),
	('DROP INDEX outbox.attempts_default_one_terminal_per_outbox; CREATE INDEX attempts_default_one_terminal_per_outbox ON outbox.attempts_default (outbox_id) WHERE state IN (''DISPATCHED'', ''FAILED'')'),
	('DROP INDEX outbox.attempts_default_one_terminal_per_outbox; CREATE UNIQUE INDEX attempts_default_one_terminal_per_outbox ON outbox.attempts_default (outbox_id) WHERE state = ''DISPATCHED'''),
	('UPDATE pg_index SET indisvalid = false WHERE indexrelid = ''outbox.pending_due''::regclass'),
	('DROP INDEX outbox.pending_due'),
	('DROP INDEX outbox.pending_lease'),
	('DROP INDEX outbox.pending_key_sequence'),
	('DROP INDEX outbox.pending_key_sequence; CREATE INDEX pending_key_sequence ON outbox.pending (sequence_id)'),
	('ALTER TABLE outbox.pending DROP CONSTRAINT pending_lease_is_whole'),
	('ALTER TABLE outbox.idempotency_keys DROP CONSTRAINT idempotency_keys_pkey'),
	('ALTER TABLE outbox.key_numbers DROP CONSTRAINT key_numbers_pkey'),
	('ALTER TABLE outbox.replays DROP CONSTRAINT replays_pkey')) v(s);
-- A user's own index is none of its business.
SELECT t.after($$CREATE INDEX mine ON outbox.messages_default ((payload ->> 'customer'))$$);

\pset format aligned
\pset tuples_only off
-- All of it was rolled back.
SELECT * FROM outbox.check() WHERE severity = 'error';
DROP ROLE regress_outbox_other;
