-- From the outbox table of Debezium's outbox event router. docs/migrating.md says what to do before and afterwards.
--
--	psql -v table=app.outboxevent -v queue=events -f examples/migrate/debezium.sql
--	psql -c 'CALL migration.redirect()'
--	psql -c "SELECT migration.delivered('debezium')"		the connector's slot; until it says t
--
-- Guarantees:
-- - Each event is published by exactly one side. What was committed before the redirection is in the WAL for the connector; what is
--   committed after it is in the outbox, and the connector never sees it.
-- - Producers need no change: INSERT, and a DELETE in the same transaction, find and count their row as before.
-- - The order of each aggregate stays, if the queue is fifo and paused until the connector has delivered.
--
-- Shape: rows of the old table are never marked, so nothing can be moved. Instead the old table gets another name, under which the connector
-- finishes what the WAL has of it, and a stand-in takes its name. That is UNLOGGED, so no connector hears of it, and empty after each
-- commit: a deferred trigger enqueues what was inserted and deletes it.
--
-- Rights of the role that runs it: it owns the old table, and a schema `migration`; CREATE on the old table's schema; outbox_ingest.
\set ON_ERROR_STOP on
BEGIN;

CREATE TABLE migration.origin (old_table regclass, queue text, redirected_at pg_lsn);
INSERT INTO migration.origin VALUES (:'table', :'queue');

-- What a row is in the outbox. It is written for the columns of the router's documentation; edit it for yours. Columns of
-- table.fields.additional.placement become headers: jsonb_build_object('eventType', NEW.type).
CREATE FUNCTION migration.redirect_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM outbox.enqueue(NEW.type, NEW.payload, TG_ARGV[0], aggregate_type => NEW.aggregatetype, aggregate_id => NEW.aggregateid,
		partition_key => nullif(NEW.aggregateid, ''), event_id => NEW.id);
	EXECUTE format('DELETE FROM %s WHERE id = $1', TG_RELID::regclass) USING NEW.id;
	RETURN NULL;
END $$;
COMMENT ON FUNCTION migration.redirect_row() IS 'Trigger function: enqueues the row that was inserted, and deletes it';

-- Waits for open transactions half a second at most, and then fails with 55P03: call it again.
CREATE PROCEDURE migration.redirect() LANGUAGE plpgsql AS $$
DECLARE
	origin migration.origin;
	old pg_class;
	stand_in text;
	command text;
BEGIN
	PERFORM set_config('lock_timeout', '500 ms', true);
	SELECT * INTO STRICT origin FROM migration.origin WHERE redirected_at IS NULL;
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', origin.old_table);
	-- Whoever wrote to the table has committed: those records are before this place of the WAL.
	UPDATE migration.origin SET redirected_at = pg_current_wal_insert_lsn();
	SELECT * INTO old FROM pg_class WHERE oid = origin.old_table;
	stand_in := format('%s.%I', old.relnamespace::regnamespace, old.relname);
	EXECUTE format('ALTER TABLE %s RENAME TO %I', stand_in, left(old.relname, 50) || '_before');
	EXECUTE format('CREATE UNLOGGED TABLE %s (LIKE %s INCLUDING ALL)', stand_in, origin.old_table);
	FOR command IN
		SELECT format('GRANT %s%s ON %s TO %s', privilege_type, columns, stand_in, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END)
		FROM (SELECT '' AS columns, old.relacl AS acl
			UNION ALL SELECT format(' (%I)', attname), attacl FROM pg_attribute WHERE attrelid = origin.old_table) granted, aclexplode(acl)
	LOOP
		EXECUTE command;
	END LOOP;
	EXECUTE format('CREATE CONSTRAINT TRIGGER redirect_to_outbox AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION migration.redirect_row(%L)',
		stand_in, origin.queue);
END $$;
COMMENT ON PROCEDURE migration.redirect() IS 'Gives the old table another name, and puts one in its place that sends rows to the outbox';

-- Whether the connector has delivered, and confirmed, all that it will ever see of the old table.
CREATE FUNCTION migration.delivered(slot name) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT s.confirmed_flush_lsn >= o.redirected_at FROM pg_replication_slots s, migration.origin o WHERE s.slot_name = slot;
END;
COMMENT ON FUNCTION migration.delivered(name) IS 'Whether the slot has passed the redirection';

REVOKE ALL ON ALL ROUTINES IN SCHEMA migration FROM PUBLIC;
COMMIT;
