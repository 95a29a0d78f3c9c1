--
-- check, where outbox_payment and outbox_m10 are installed: it holds their tables to
-- what holds for the ledger, and reports rights to write, triggers, rules and row level
-- security of others on their tables and views; of an extension that is no contract
-- of the outbox it says nothing.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE SCHEMA IF NOT EXISTS pay;
CREATE EXTENSION outbox_payment SCHEMA pay CASCADE;
CREATE EXTENSION outbox_m10 CASCADE;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT created FROM outbox.enqueue('e', '1');
\set helpers :testdir /sql/check.inc
\i :helpers
SELECT * FROM outbox.check() WHERE severity = 'error';
-- What it must look at: this, and no other, is what contracts keep.
SELECT e.extname, c.oid::regclass AS relation, c.relkind FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid WHERE e.extname IN ('outbox_payment', 'outbox_m10') AND c.relkind NOT IN ('v', 'i') ORDER BY 1, 2;
\pset format unaligned
\pset tuples_only on

-- The map of ids is append-only.
SELECT t.after(s) FROM (VALUES
	('DROP TRIGGER append_only ON m10_recovery.event_ids'),
	('DROP TRIGGER append_only_truncate ON m10_recovery.event_ids'),
	('ALTER TABLE m10_recovery.event_ids DISABLE TRIGGER append_only'),
	('ALTER TABLE m10_recovery.event_ids ENABLE TRIGGER append_only'),
	('ALTER TABLE m10_recovery.event_ids ENABLE REPLICA TRIGGER append_only_truncate'),
	('ALTER TABLE m10_recovery.event_ids DISABLE TRIGGER ALL'),
	('ALTER TABLE m10_recovery.event_ids DROP CONSTRAINT event_ids_pkey'),
	('ALTER TABLE m10_recovery.event_ids SET UNLOGGED'),
	-- A state of its own is what a contract must not have.
	('CREATE TABLE m10_recovery.claims (id bigint PRIMARY KEY); ALTER TABLE m10_recovery.claims OWNER TO m10_recovery_owner; ALTER EXTENSION outbox_m10 ADD TABLE m10_recovery.claims')) v(s);
-- Triggers, rules, row level security of others. Referring to an event is no harm.
SELECT t.after(s) FROM (VALUES
	('CREATE TRIGGER mine BEFORE INSERT ON m10_recovery.event_ids FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE TRIGGER mine INSTEAD OF INSERT ON m10_recovery.outbox FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('DROP TRIGGER update_pending ON pay.payment_outbox_pending; CREATE TRIGGER update_pending INSTEAD OF UPDATE ON pay.payment_outbox_pending FOR EACH ROW EXECUTE FUNCTION t.noop()'),
	('CREATE RULE mine AS ON INSERT TO m10_recovery.event_ids DO INSTEAD NOTHING'),
	('CREATE RULE mine AS ON DELETE TO pay.payment_outbox_attempts DO INSTEAD NOTHING'),
	('ALTER TABLE m10_recovery.event_ids ENABLE ROW LEVEL SECURITY'),
	('CREATE TABLE t.f (id bigint REFERENCES m10_recovery.event_ids)')) v(s);
-- Rights.
SELECT t.after(s) FROM (VALUES
	('GRANT INSERT ON m10_recovery.event_ids TO outbox_ingest'),
	('GRANT UPDATE (outbox_id) ON m10_recovery.event_ids TO outbox_operator'),
	('GRANT SELECT ON m10_recovery.event_ids TO PUBLIC'),
	('GRANT UPDATE ON SEQUENCE m10_recovery.event_ids_id_seq TO outbox_executor'),
	('GRANT USAGE ON SCHEMA m10_recovery TO PUBLIC'),
	('GRANT CREATE ON SCHEMA m10_recovery TO outbox_executor'),
	('GRANT EXECUTE ON FUNCTION m10_recovery.publish_outbox TO PUBLIC'),
	('GRANT UPDATE ON pay.payment_outbox_pending TO symphony_executor'),
	('GRANT UPDATE (lease_token) ON pay.payment_outbox_pending TO PUBLIC'),
	('GRANT INSERT, DELETE ON pay.payment_outbox_attempts TO symphony_ingest, symphony_control'),
	('GRANT EXECUTE ON FUNCTION pay.bump_participant_outbox_seq TO PUBLIC'),
	('GRANT USAGE ON TYPE pay.outbox_attempt_state TO PUBLIC'),
	('GRANT m10_recovery_owner TO regress_outbox_other'),
	('GRANT outbox_owner TO symphony_executor'),
	('GRANT pg_write_all_data TO symphony_readonly'),
	('ALTER ROLE m10_recovery_owner LOGIN'),
	('ALTER ROLE symphony_control CREATEROLE'),
	-- To read, to call, to bear a role of one's own is what the owner may grant.
	('GRANT SELECT ON m10_recovery.outbox TO regress_outbox_other; GRANT EXECUTE ON FUNCTION pay.claim_outbox_batch TO regress_outbox_other; GRANT symphony_executor TO regress_outbox_other')) v(s);
-- The payment contract's own index is one of its own, like a user's; it may be missing.
SELECT t.after('DROP INDEX outbox.pending_payment_participant');
-- No contract: it does not bear the name, or does not require the outbox.
SELECT t.after(s) FROM (VALUES
	('ALTER EXTENSION outbox_m10 DROP TABLE m10_recovery.event_ids; DROP TRIGGER append_only ON m10_recovery.event_ids'),
	('DELETE FROM pg_depend WHERE classid = ''pg_extension''::regclass AND objid = (SELECT oid FROM pg_extension WHERE extname = ''outbox_m10''); DROP TRIGGER append_only ON m10_recovery.event_ids')) v(s);
\pset format aligned
\pset tuples_only off
SELECT * FROM outbox.check() WHERE severity = 'error';
SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP EXTENSION outbox CASCADE;
DROP SCHEMA pay;
DROP ROLE regress_outbox_other;
