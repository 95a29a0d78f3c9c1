--
-- check: nothing on a clean database, but for a warning that no background worker
-- runs; each thing that is broken on purpose, in each place where it can be, is
-- reported, naming the object, and no more once it is undone. (Contracts: check_contracts.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT * FROM outbox.check();
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT created FROM outbox.enqueue('e', '1');
\set helpers :testdir /sql/check.inc
\i :helpers
SELECT * FROM outbox.check() WHERE severity = 'error';
-- All tables there are.
SELECT shown, holds_rows FROM t.tables ORDER BY n;
SELECT DISTINCT t.masked(relname) AS others FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p') AND relname NOT IN (SELECT name FROM t.tables) ORDER BY 1;
\pset format unaligned
\pset tuples_only on

-- Each trigger of ours: dropped, disabled, for replicas only, not for them. What is a
-- clone of the parent's may be disabled, because the leaf has its own.
SELECT '> ' || name || ' of ' || "table" || chr(10) || '   ' || string_agg(way, ', ' ORDER BY w) || ': ' || found
FROM t.triggers CROSS JOIN LATERAL (VALUES
	(1, 'dropped', format('DROP TRIGGER %I ON %s', name, self)),
	(2, 'DISABLE', format('ALTER TABLE %s DISABLE TRIGGER %I', self, name)),
	(3, 'ENABLE', format('ALTER TABLE %s ENABLE TRIGGER %I', self, name)),
	(4, 'ENABLE REPLICA', format('ALTER TABLE %s ENABLE REPLICA TRIGGER %I', self, name))) v(w, way, statement)
CROSS JOIN LATERAL array_to_string(t.errors_after(statement, self), '; ') found
WHERE NOT (is_clone AND way = 'dropped')
GROUP BY n, "table", name, found ORDER BY n, name COLLATE "C", found;
-- All of a table at once, those of users among them.
SELECT t.on_each('ALTER TABLE %s DISABLE TRIGGER ALL');
-- Triggers that are there and guard nothing; a function that was replaced.
SELECT t.after(s) FROM (VALUES
	('DROP TRIGGER append_only_truncate ON outbox.MESSAGES_LEAF; CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.MESSAGES_LEAF FOR EACH STATEMENT EXECUTE FUNCTION t.noop(); ALTER TABLE outbox.MESSAGES_LEAF ENABLE ALWAYS TRIGGER append_only_truncate'),
	('DROP TRIGGER append_only_leaf ON outbox.attempts_default; CREATE TRIGGER append_only_leaf BEFORE UPDATE OR DELETE ON outbox.attempts_default FOR EACH ROW WHEN (old.state = ''FAILED'') EXECUTE FUNCTION outbox.append_only(); ALTER TABLE outbox.attempts_default ENABLE ALWAYS TRIGGER append_only_leaf'),
	('DROP TRIGGER append_only_leaf ON outbox.attempts_default; CREATE TRIGGER append_only_leaf BEFORE UPDATE OF state OR DELETE ON outbox.attempts_default FOR EACH ROW EXECUTE FUNCTION outbox.append_only(); ALTER TABLE outbox.attempts_default ENABLE ALWAYS TRIGGER append_only_leaf'),
	('DROP TRIGGER append_only_leaf ON outbox.attempts_default; CREATE TRIGGER append_only_leaf BEFORE DELETE ON outbox.attempts_default FOR EACH ROW EXECUTE FUNCTION outbox.append_only(); ALTER TABLE outbox.attempts_default ENABLE ALWAYS TRIGGER append_only_leaf'),
	('CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE plpgsql AS ''BEGIN RETURN coalesce(new, old); END'''),
	('CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE c AS ''$libdir/outbox'', ''outbox_merge_queue''')) v(s);
-- An archived (detached) leaf that can be changed.
SELECT t.after('ALTER TABLE outbox.messages DETACH PARTITION outbox.MESSAGES_LEAF; ALTER TABLE outbox.attempts DETACH PARTITION outbox.ATTEMPTS_LEAF; ALTER TABLE outbox.events DETACH PARTITION outbox.EVENTS_LEAF' || s) FROM (VALUES
	(''),
	('; DROP TRIGGER append_only_leaf ON outbox.ATTEMPTS_LEAF'),
	('; ALTER TABLE outbox.MESSAGES_LEAF DISABLE TRIGGER append_only_truncate')) v(s);
-- Partitions made by hand: no indexes, no triggers of their own, no counterpart; in another
-- schema; partitioned further.
SELECT t.after(s || $$ FOR VALUES FROM ('fffffff0-0000-0000-0000-000000000000') TO ('fffffff1-0000-0000-0000-000000000000')$$ || rest) FROM (VALUES
	('CREATE TABLE outbox.messages_hand PARTITION OF outbox.messages', ''),
	('CREATE TABLE outbox.attempts_hand PARTITION OF outbox.attempts', ''),
	('CREATE TABLE t.messages_hand PARTITION OF outbox.messages', '; GRANT INSERT ON t.messages_hand TO outbox_ingest'),
	('CREATE TABLE outbox.messages_hand PARTITION OF outbox.messages (CONSTRAINT messages_hand_pkey PRIMARY KEY (outbox_id))', ' PARTITION BY HASH (outbox_id)')) v(s, rest);
SELECT t.after('ALTER TABLE outbox.messages DETACH PARTITION outbox.MESSAGES_LEAF');

-- Triggers, rules, row level security and constraints of others; foreign keys.
SELECT t.on_each(s, only_with_rows) FROM (VALUES
	(false, 'CREATE TRIGGER mine AFTER INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION t.noop()'),
	(true, 'CREATE TRIGGER mine BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	(true, 'CREATE TRIGGER mine BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION outbox.append_only()'),
	(false, 'CREATE RULE mine AS ON INSERT TO %s DO ALSO NOTHING'),
	(false, 'CREATE RULE mine AS ON DELETE TO %s DO INSTEAD NOTHING'),
	(false, 'ALTER TABLE %s ENABLE ROW LEVEL SECURITY')) v(only_with_rows, s);
SELECT t.after(s) FROM (VALUES
	('CREATE TRIGGER mine AFTER INSERT ON outbox.attempts FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE CONSTRAINT TRIGGER mine AFTER INSERT ON outbox.attempts_default DEFERRABLE FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE TABLE t.f (id uuid REFERENCES outbox.pending)'),
	('CREATE TABLE t.f (k text PRIMARY KEY); ALTER TABLE outbox.MESSAGES_LEAF ADD CONSTRAINT mine FOREIGN KEY (aggregate_type) REFERENCES t.f'),
	('ALTER TABLE outbox.attempts_default ADD CONSTRAINT mine UNIQUE (reference) DEFERRABLE'),
	('ALTER TABLE outbox.MESSAGES_LEAF ADD CONSTRAINT mine EXCLUDE USING hash (aggregate_id WITH =)'),
	('CREATE RULE mine AS ON INSERT TO outbox.status DO INSTEAD NOTHING'),
	('CREATE TRIGGER mine INSTEAD OF UPDATE ON outbox.status FOR EACH ROW EXECUTE FUNCTION t.noop()')) v(s);
-- In flight is a lease, never an attempt.
SELECT t.after($$ALTER TYPE outbox.attempt_state ADD VALUE 'DISPATCHING'$$);
SELECT t.after($$ALTER TYPE outbox.attempt_state RENAME VALUE 'RETRYABLE' TO 'DISPATCHING'$$);
SELECT t.on_each('ALTER TABLE %s SET UNLOGGED', true);

-- Rights to write: to a runtime role, to anybody, to PUBLIC; on tables, columns and views.
SELECT t.on_each(s) FROM (VALUES
	(1, 'GRANT INSERT, UPDATE, DELETE, TRUNCATE ON %s TO outbox_executor'),
	(2, 'GRANT UPDATE ON %s TO outbox_operator WITH GRANT OPTION'),
	(3, 'GRANT TRIGGER, REFERENCES ON %s TO regress_outbox_other'),
	(4, 'GRANT DELETE ON %s TO PUBLIC'),
	(5, 'GRANT SELECT ON %s TO PUBLIC')) v(n, s) ORDER BY n;
SELECT t.on_each('DO $d$ DECLARE c text := (SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = ''%s''::regclass AND attnum = 1); '
	|| 'BEGIN EXECUTE ''GRANT UPDATE ('' || c || '') ON %s TO outbox_ingest''; END $d$');
SELECT t.after(s) FROM (VALUES
	('GRANT INSERT (payload) ON outbox.messages TO regress_outbox_other'),
	('GRANT SELECT (payload) ON outbox.messages TO PUBLIC'),
	('GRANT INSERT ON outbox.dead_letters TO regress_outbox_other'),
	('GRANT SELECT ON outbox.status TO PUBLIC'),
	('GRANT EXECUTE ON FUNCTION outbox.pause(text) TO PUBLIC'),
	('GRANT USAGE ON SCHEMA outbox TO PUBLIC'),
	('GRANT CREATE ON SCHEMA outbox TO regress_outbox_other'),
	('GRANT USAGE ON TYPE outbox.attempt_state TO PUBLIC'),
	('ALTER DEFAULT PRIVILEGES FOR ROLE outbox_owner IN SCHEMA outbox GRANT INSERT ON TABLES TO outbox_ingest'),
	('ALTER DEFAULT PRIVILEGES FOR ROLE outbox_owner GRANT SELECT ON TABLES TO PUBLIC'),
	('ALTER TABLE outbox.pending OWNER TO regress_outbox_other'),
	('ALTER TABLE outbox.MESSAGES_LEAF OWNER TO regress_outbox_other'),
	('ALTER VIEW outbox.status OWNER TO regress_outbox_other'),
	('ALTER FUNCTION outbox.pause(text) OWNER TO regress_outbox_other'),
	('ALTER SCHEMA outbox OWNER TO regress_outbox_other')) v(s);
-- Of queues, it could not read them any more, and fails with that.
SELECT t.try('ALTER TABLE outbox.queues OWNER TO regress_outbox_other; SELECT * FROM outbox.check()');
-- By being a member of who may; of the runtime roles, by a detour too.
SELECT t.after(s) FROM (VALUES
	('GRANT outbox_owner TO outbox_executor'),
	('GRANT outbox_owner TO regress_outbox_other; GRANT regress_outbox_other TO outbox_ingest'),
	('GRANT pg_write_all_data TO outbox_operator'),
	('GRANT pg_write_all_data TO regress_outbox_other; GRANT regress_outbox_other TO outbox_ingest'),
	('ALTER ROLE regress_outbox_other SUPERUSER; GRANT regress_outbox_other TO outbox_auditor'),
	('GRANT pg_write_all_data TO regress_outbox_other; GRANT SELECT ON outbox.status TO regress_outbox_other'),
	('GRANT pg_write_all_data TO regress_outbox_other'),
	('ALTER ROLE outbox_owner LOGIN'),
	('ALTER ROLE outbox_owner SUPERUSER'),
	('ALTER ROLE outbox_ingest LOGIN'),
	('ALTER ROLE outbox_operator CREATEROLE'),
	('ALTER ROLE outbox_executor BYPASSRLS')) v(s);
-- To read, or to call, is what the owner may grant.
SELECT t.after('GRANT SELECT ON outbox.messages TO regress_outbox_other; GRANT outbox_executor TO regress_outbox_other');

-- Each index: dropped, and not valid.
SELECT '> ' || t.masked(name) || chr(10) || '   ' || string_agg(way, ', ' ORDER BY w) || ': ' || found
FROM t.indexes CROSS JOIN LATERAL (VALUES
	(1, 'dropped', dropping),
	(2, 'not valid', 'UPDATE pg_index SET indisvalid = false WHERE indexrelid = ' || oid),
	(3, 'not ready', 'UPDATE pg_index SET indisready = false WHERE indexrelid = ' || oid)) v(w, way, statement)
CROSS JOIN LATERAL array_to_string(t.errors_after(statement, self), '; ') found
GROUP BY n, name, found ORDER BY n, name COLLATE "C", found;
-- Others of the same name; constraints that are others than they seem.
SELECT t.after(s) FROM (VALUES
	('DROP INDEX outbox.attempts_default_one_terminal_per_outbox; CREATE INDEX attempts_default_one_terminal_per_outbox ON outbox.attempts_default (outbox_id) WHERE state IN (''DISPATCHED'', ''FAILED'')'),
	('DROP INDEX outbox.attempts_default_one_terminal_per_outbox; CREATE UNIQUE INDEX attempts_default_one_terminal_per_outbox ON outbox.attempts_default (outbox_id) WHERE state = ''DISPATCHED'''),
	('DROP INDEX outbox.pending_key_sequence; CREATE INDEX pending_key_sequence ON outbox.pending (sequence_id)'),
	('ALTER TABLE outbox.MESSAGES_LEAF DROP CONSTRAINT MESSAGES_LEAF_pkey, ADD CONSTRAINT MESSAGES_LEAF_pkey PRIMARY KEY (outbox_id) DEFERRABLE'),
	('ALTER TABLE outbox.replays DROP CONSTRAINT replays_pkey, ADD PRIMARY KEY (replay_id)'),
	('ALTER TABLE outbox.pending DROP CONSTRAINT pending_lease_is_whole'),
	('ALTER TABLE outbox.pending DROP CONSTRAINT pending_lease_is_whole, ADD CONSTRAINT pending_lease_is_whole CHECK (true)'),
	('ALTER TABLE outbox.pending DROP CONSTRAINT pending_lease_is_whole, ADD CONSTRAINT pending_lease_is_whole CHECK (num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) IN (0, 4)) NOT VALID'),
	('ALTER TABLE outbox.attempts_default DROP CONSTRAINT attempts_number'),
	('ALTER TABLE outbox.ATTEMPTS_LEAF DROP CONSTRAINT attempts_completed_at')) v(s);
-- A user's own index is none of its business.
SELECT t.after($$CREATE INDEX mine ON outbox.messages_default ((payload ->> 'customer'))$$);

-- Undone not by rolling back but by hand: the report is empty again.
ALTER TABLE outbox.pending DISABLE TRIGGER append_only_truncate;
GRANT INSERT ON outbox.attempts TO outbox_executor;
GRANT UPDATE (state) ON outbox.attempts_default TO PUBLIC;
GRANT outbox_owner TO regress_outbox_other;
CREATE RULE mine AS ON INSERT TO outbox.queues DO ALSO NOTHING;
ALTER TABLE outbox.key_numbers ENABLE ROW LEVEL SECURITY;
DROP INDEX outbox.attempts_default_failed;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER append_only_truncate;
REVOKE INSERT ON outbox.attempts FROM outbox_executor;
REVOKE UPDATE (state) ON outbox.attempts_default FROM PUBLIC;
REVOKE outbox_owner FROM regress_outbox_other;
DROP RULE mine ON outbox.queues;
ALTER TABLE outbox.key_numbers DISABLE ROW LEVEL SECURITY;
CREATE INDEX attempts_default_failed ON outbox.attempts_default (outbox_id) WHERE state = 'FAILED';

-- Hundreds of partitions are a warning.
BEGIN;
SET LOCAL client_min_messages = warning;
DO $$ BEGIN FOR i IN 1..500 LOOP
	EXECUTE format('CREATE TABLE outbox.messages_n%s PARTITION OF outbox.messages FOR VALUES FROM (%L) TO (%L)', i,
		'00000000-0000-0000-0000-' || lpad(i::text, 12, '0'), '00000000-0000-0000-0000-' || lpad((i + 1)::text, 12, '0'));
END LOOP; END $$;
SELECT object, regexp_replace(problem, '\d+', '<n>') FROM outbox.check() WHERE severity = 'warning' AND object <> 'background worker';
ROLLBACK;
SELECT count(*) FROM outbox.check() WHERE severity = 'warning' AND object <> 'background worker';

-- Keys that wait for an operator, and places that nobody frees.
BEGIN;
SELECT outbox.create_queue('blocks', ordering => 'fifo', on_dead_head => 'block'), outbox.create_queue('full', max_in_flight => 2);
SELECT count(*) FROM unnest('{a,a,b,b}'::text[]) k, outbox.enqueue('e', '1', 'blocks', partition_key => k);
SELECT c.recorded FROM outbox.claim('w', 2, queues => '{blocks}') m, outbox.complete(m.outbox_id, m.lease_token, 'w', 'FAILED') c;
SELECT count(*) FROM generate_series(1, 4) i, outbox.enqueue('e' || i, '1', 'full');
SELECT count(*) FROM outbox.claim('w', 9, queues => '{full}');
SELECT object, problem FROM outbox.check() WHERE object LIKE 'queue %';
UPDATE outbox.pending SET claimed_at = now() - interval '2 hours', lease_expires_at = now() - interval '1 hour' WHERE queue = 'full' AND claimed_by = 'w';
SELECT object, problem FROM outbox.check() WHERE object LIKE 'queue %';
ROLLBACK;

\pset format aligned
\pset tuples_only off
SELECT * FROM outbox.check() WHERE severity = 'error';
DROP ROLE regress_outbox_other;
