-- Moves the pending rows of another queue into outbox. The script of each origin reads this first, and then says what a row is.
--
-- Guarantees:
-- - A row is deleted there and enqueued here in one transaction, and its idempotency key is made of its identity there. So a
--   move can be killed at any moment and called again: no row is lost, none is moved twice.
-- - Old workers may run meanwhile. A row that one of them holds, by a row lock or by a lease, is not touched.
-- - Producers may run meanwhile, old and new ones. A transaction moves one batch.
--
-- Shape: the script of the origin fills, in the schema migration,
--	migration.origin	one row: the old table, its key column, and which of its rows to redirect
-- and makes
--	migration.pending	a view: a row for each pending row of the old table, with the arguments of outbox.enqueue, and with id, place (the
--						order in which old workers take rows) and movable (no worker holds it). A DELETE from it deletes the row
-- Everything but the trigger runs with the rights of the caller. To move a second queue at the same time, replace `migration` by
-- another name in both files.

CREATE TABLE migration.origin (old_table regclass NOT NULL, id_column text NOT NULL, condition text);

-- Ends the script of an origin that is not as it has to be; nothing is left of it.
CREATE FUNCTION migration.expect(holds boolean, reason text, hint text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF holds IS NOT TRUE THEN
		RAISE EXCEPTION '%', reason USING ERRCODE = 'feature_not_supported', HINT = hint;
	END IF;
	RETURN true;
END $$;
COMMENT ON FUNCTION migration.expect(boolean, text, text) IS 'Raises an error unless the first argument is true';

-- Moves those of these rows that no old worker holds; in order: up to the first that one holds. The caller has locked them, or has
-- just inserted them: what is read here is what is deleted.
CREATE FUNCTION migration.take(ids anyarray, in_order boolean DEFAULT false) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	old record;
	moved bigint := 0;
BEGIN
	FOR old IN
		WITH held AS MATERIALIZED (SELECT id, place FROM migration.pending WHERE in_order AND id = ANY (ids) AND NOT movable),
			gone AS (
				DELETE FROM migration.pending p
				WHERE id = ANY (ids) AND movable AND NOT EXISTS (SELECT FROM held h WHERE (h.place, h.id) < (p.place, p.id))
				RETURNING *)
		SELECT * FROM gone ORDER BY place, id
	LOOP
		PERFORM outbox.enqueue(old.event_type, old.payload, old.queue, aggregate_type => old.aggregate_type, aggregate_id => old.aggregate_id,
			partition_key => old.partition_key, idempotency_key => old.idempotency_key, event_id => old.event_id, headers => old.headers,
			priority => old.priority, deliver_at => old.deliver_at, max_attempts => old.max_attempts);
		moved := moved + 1;
	END LOOP;
	RETURN moved;
END $$;
COMMENT ON FUNCTION migration.take(anyarray, boolean) IS 'Moves these rows into outbox, unless an old worker holds them; returns how many';

-- One batch; returns how many rows it has moved. It passes by rows that are locked; in order it waits for them. Rows of the table are
-- locked, and not those of the view: that would lock all of them.
CREATE FUNCTION migration.move_batch(batch int, in_order boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	moved bigint;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'rows are moved in READ COMMITTED transactions only' USING ERRCODE = 'active_sql_transaction',
			HINT = 'Say SET default_transaction_isolation = ''read committed'' first.';
	END IF;
	-- Less than deadlock_timeout: if this and a producer wait for each other, it is not the producer that fails.
	PERFORM set_config('lock_timeout', '500 ms', true);
	-- One at a time: a move may still run although its client is gone.
	PERFORM pg_advisory_xact_lock('migration.pending'::regclass::oid::bigint);
	EXECUTE (
		SELECT format('
			WITH locked AS MATERIALIZED (
				SELECT p.id FROM migration.pending p JOIN %s t ON t.%I = p.id
				WHERE p.movable OR $2 ORDER BY p.place, p.id LIMIT $1 FOR UPDATE OF t %s)
			SELECT coalesce(migration.take(array_agg(id), $2), 0) FROM locked', old_table, id_column, CASE WHEN NOT in_order THEN 'SKIP LOCKED' END)
		FROM migration.origin)
	INTO STRICT moved USING batch, in_order;
	RETURN moved;
END $$;
COMMENT ON FUNCTION migration.move_batch(int, boolean) IS 'Moves up to so many rows; returns how many';

-- Moves what is pending until there is nothing more that it may move. What old workers hold stays: call it again. With in_order the
-- order of the rows is kept; stop the old workers first, as docs/migrating.md says.
CREATE PROCEDURE migration.move(batch int DEFAULT 500, in_order boolean DEFAULT false) LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	moved bigint := 0;
	remaining bigint;
BEGIN
	LOOP
		BEGIN
			n := migration.move_batch(batch, in_order);
		EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
			n := NULL;		-- again
		END;
		COMMIT;
		EXIT WHEN n = 0;
		moved := moved + coalesce(n, 0);
	END LOOP;
	SELECT count(*) INTO remaining FROM migration.pending;
	RAISE NOTICE '% rows moved, % left', moved, remaining;
END $$;
COMMENT ON PROCEDURE migration.move(int, boolean) IS 'Moves what is pending and not held by old workers, in transactions of one batch';

-- From now on what is inserted into the old table goes to the outbox, in the producer's transaction. With in_order what is pending is moved
-- first, in the same transaction. Waits for producers half a second at most, and then fails with 55P03: call it again.
CREATE PROCEDURE migration.redirect(in_order boolean DEFAULT false) LANGUAGE plpgsql AS $$
DECLARE
	origin migration.origin;
	held bigint;
BEGIN
	SELECT * INTO STRICT origin FROM migration.origin;
	PERFORM set_config('lock_timeout', '500 ms', true);
	EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', origin.old_table);
	IF in_order THEN
		PERFORM migration.move_batch(NULL, true);
		SELECT count(*) INTO held FROM migration.pending;
		IF held > 0 THEN
			RAISE EXCEPTION 'old workers hold % rows', held USING ERRCODE = 'object_in_use',
				HINT = 'Stop the old workers, wait until they have ended, and call again.';
		END IF;
	END IF;
	EXECUTE format('CREATE TRIGGER redirect_to_outbox AFTER INSERT ON %s FOR EACH ROW %s EXECUTE FUNCTION migration.redirect_row(%L)',
		origin.old_table, 'WHEN (' || origin.condition || ')', origin.id_column);
END $$;
COMMENT ON PROCEDURE migration.redirect(boolean) IS 'Makes the trigger that moves each row which is inserted into the old table';

-- After INSERT and not before it, so that the statement returns and counts the row as it always did. The row is gone before
-- the transaction commits: no old worker sees it.
CREATE FUNCTION migration.redirect_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	EXECUTE format('SELECT migration.take(ARRAY[($1).%I])', TG_ARGV[0]) USING NEW;
	RETURN NULL;
END $$;
COMMENT ON FUNCTION migration.redirect_row() IS 'Trigger function: moves the row that was just inserted';

REVOKE ALL ON ALL ROUTINES IN SCHEMA migration FROM PUBLIC;
