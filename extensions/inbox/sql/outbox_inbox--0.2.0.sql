/* outbox_inbox 0.2.0: the complete install script.
 *
 * What it guarantees: every object lives in schema inbox, belongs to the role inbox_owner (which cannot log in
 * and is no superuser), carries a COMMENT and gives PUBLIC nothing. It needs no other extension but plpgsql.
 *
 * The partitions of events are children by inheritance, made and dropped by the functions below. They have a
 * beginning and no end, so the newest accepts whatever comes; and dropping one locks no other.
 */
\echo Use "CREATE EXTENSION outbox_inbox" to load this file. \quit

SET LOCAL default_table_access_method = 'heap';
SET LOCAL default_tablespace = '';

---------------------------------------------------------------- roles

DO LANGUAGE plpgsql $roles$
DECLARE
	wanted record;
	existing record;
BEGIN
	FOR wanted IN
		SELECT * FROM (VALUES
			('inbox_owner', 'owns all objects of the extension outbox_inbox'),
			('inbox_consumer', 'inbox: may receive events, report failures and lift payloads'),
			('inbox_operator', 'inbox: sets windows, forgets, replays, maintains, registers upcasters'),
			('inbox_readonly', 'inbox: reads tables and views')) AS v(name, meaning)
	LOOP
		LOOP
			SELECT rolcanlogin, rolsuper, rolcreaterole, rolbypassrls INTO existing
			FROM pg_catalog.pg_roles WHERE rolname = wanted.name;
			EXIT WHEN FOUND;
			BEGIN
				EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted.name);
				EXECUTE pg_catalog.format('COMMENT ON ROLE %I IS %L', wanted.name, wanted.meaning);
			EXCEPTION WHEN unique_violation OR duplicate_object THEN
				NULL;	-- made in another database meanwhile: look at it
			END;
		END LOOP;
		IF existing.rolcanlogin OR existing.rolsuper OR existing.rolcreaterole OR existing.rolbypassrls THEN
			RAISE EXCEPTION 'role "%" exists and has more rights than the extension may build on', wanted.name
				USING ERRCODE = 'invalid_role_specification',
					DETAIL = 'It can log in, is a superuser, or has CREATEROLE or BYPASSRLS.',
					HINT = pg_catalog.format('Use ALTER ROLE %I NOLOGIN NOSUPERUSER NOCREATEROLE NOBYPASSRLS, or rename that role.', wanted.name);
		END IF;
	END LOOP;
END
$roles$;

CREATE SCHEMA inbox;
COMMENT ON SCHEMA inbox IS 'inbox: events that consumers of this database have received, each once';

---------------------------------------------------------------- tables

CREATE SEQUENCE inbox.numbers AS integer;
COMMENT ON SEQUENCE inbox.numbers IS 'numbers of consumers and partitions; a newer partition of a consumer has a higher number';

CREATE TABLE inbox.consumers (
	consumer text COLLATE "C" NOT NULL,
	consumer_id integer NOT NULL,
	remember_for interval DEFAULT '90 days',
	window_chosen boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	CONSTRAINT consumers_pkey PRIMARY KEY (consumer),
	CONSTRAINT consumers_name_length CHECK (pg_catalog.octet_length(consumer) BETWEEN 1 AND 63),
	CONSTRAINT consumers_remember_for CHECK (remember_for > interval '0' AND remember_for <= interval '100 years')
);
COMMENT ON TABLE inbox.consumers IS 'The consumers. One is made by its first receive, or by set_window.';
COMMENT ON COLUMN inbox.consumers.consumer IS 'name, 1 to 63 bytes; names that differ in case are different consumers';
COMMENT ON COLUMN inbox.consumers.consumer_id IS 'stands for it in the name of its sequence, duplicates_N';
COMMENT ON COLUMN inbox.consumers.remember_for IS 'window: an event is remembered at least for so long; NULL = for ever';
COMMENT ON COLUMN inbox.consumers.window_chosen IS 'whether set_window was called for it';
COMMENT ON COLUMN inbox.consumers.created_at IS 'when it was made';

CREATE TABLE inbox.partitions (
	consumer text COLLATE "C" NOT NULL,
	number integer NOT NULL,
	begins timestamptz NOT NULL,
	consumer_id integer NOT NULL,
	CONSTRAINT partitions_pkey PRIMARY KEY (consumer, number)
);
COMMENT ON TABLE inbox.partitions IS 'The partitions of inbox.events, which are tables named events_N. Rows are inserted and deleted, never updated: receive reads them outside of any snapshot.';
COMMENT ON COLUMN inbox.partitions.consumer IS 'whose it is';
COMMENT ON COLUMN inbox.partitions.number IS 'N in the name of the table; the highest of a consumer receives its events';
COMMENT ON COLUMN inbox.partitions.begins IS 'when it was made: the one before holds older events';
COMMENT ON COLUMN inbox.partitions.consumer_id IS 'consumers.consumer_id';

CREATE TABLE inbox.events (
	consumed_at timestamptz NOT NULL,
	event_id uuid NOT NULL,
	processing_duration_ms integer,
	schema_version integer,
	consumer text COLLATE "C" NOT NULL,
	source text NOT NULL,
	event_type text NOT NULL,
	payload jsonb
);
COMMENT ON TABLE inbox.events IS 'Parent of the partitions, empty itself. Each partition holds events of one consumer and has a primary key (event_id). Read inbox.log, and let receive alone insert: it knows between which ids those of the older partitions lie.';
COMMENT ON COLUMN inbox.events.consumed_at IS 'when receive accepted it';
COMMENT ON COLUMN inbox.events.event_id IS 'the event, as its source names it';
COMMENT ON COLUMN inbox.events.processing_duration_ms IS 'from its receipt to finish; NULL = finish was not called';
COMMENT ON COLUMN inbox.events.schema_version IS 'version of its payload, if receive was given one';
COMMENT ON COLUMN inbox.events.consumer IS 'who received it';
COMMENT ON COLUMN inbox.events.source IS 'where it came from';
COMMENT ON COLUMN inbox.events.event_type IS 'what happened';
COMMENT ON COLUMN inbox.events.payload IS 'the payload, if receive was given one';

-- receive reads consumer, event_id and dead_at by their places.
CREATE TABLE inbox.failures (
	consumer text COLLATE "C" NOT NULL,
	event_id uuid NOT NULL,
	failures integer NOT NULL,
	dead_at timestamptz,
	source text,
	event_type text,
	schema_version integer,
	payload jsonb,
	error text NOT NULL,
	first_failed_at timestamptz NOT NULL,
	last_failed_at timestamptz NOT NULL,
	replayed_at timestamptz,
	CONSTRAINT failures_pkey PRIMARY KEY (consumer, event_id),
	CONSTRAINT failures_count CHECK (failures >= 0)
);
COMMENT ON TABLE inbox.failures IS 'Events whose processing failed. One that is put aside (dead_at) is skipped by receive. A receive that commits takes its row away.';
COMMENT ON COLUMN inbox.failures.consumer IS 'whose processing failed';
COMMENT ON COLUMN inbox.failures.event_id IS 'the event';
COMMENT ON COLUMN inbox.failures.failures IS 'how often, since it was first received or replayed';
COMMENT ON COLUMN inbox.failures.dead_at IS 'when it was put aside; NULL = it is tried again';
COMMENT ON COLUMN inbox.failures.source IS 'where it came from, if failed was told';
COMMENT ON COLUMN inbox.failures.event_type IS 'what happened, if failed was told';
COMMENT ON COLUMN inbox.failures.schema_version IS 'version of its payload, if failed was told';
COMMENT ON COLUMN inbox.failures.payload IS 'the payload, if failed was given it';
COMMENT ON COLUMN inbox.failures.error IS 'the last error';
COMMENT ON COLUMN inbox.failures.first_failed_at IS 'when it first failed';
COMMENT ON COLUMN inbox.failures.last_failed_at IS 'when it last failed';
COMMENT ON COLUMN inbox.failures.replayed_at IS 'when replay let it in again; NULL = never';

CREATE TABLE inbox.upcasters (
	event_type text COLLATE "C" NOT NULL,
	from_version integer NOT NULL,
	function_schema text COLLATE "C" NOT NULL,
	function_name text COLLATE "C" NOT NULL,
	function_owner text COLLATE "C" NOT NULL,
	CONSTRAINT upcasters_pkey PRIMARY KEY (event_type, from_version),
	CONSTRAINT upcasters_from_version CHECK (from_version >= 1)
);
COMMENT ON TABLE inbox.upcasters IS 'Functions that lift the payload of an event type from one version to the next.';
COMMENT ON COLUMN inbox.upcasters.event_type IS 'the event type';
COMMENT ON COLUMN inbox.upcasters.from_version IS 'the version that the function takes; it returns the next one';
COMMENT ON COLUMN inbox.upcasters.function_schema IS 'schema of a function f(jsonb, jsonb) RETURNS jsonb';
COMMENT ON COLUMN inbox.upcasters.function_name IS 'its name';
COMMENT ON COLUMN inbox.upcasters.function_owner IS 'its owner when it was added: the function of another owner is not called';

COMMENT ON CONSTRAINT consumers_pkey ON inbox.consumers IS 'a consumer once';
COMMENT ON CONSTRAINT consumers_name_length ON inbox.consumers IS '1 to 63 bytes';
COMMENT ON CONSTRAINT consumers_remember_for ON inbox.consumers IS 'a window is positive, and its beginning a time';
COMMENT ON CONSTRAINT partitions_pkey ON inbox.partitions IS 'a partition once';
COMMENT ON CONSTRAINT failures_pkey ON inbox.failures IS 'an event of a consumer once';
COMMENT ON CONSTRAINT failures_count ON inbox.failures IS '0 after a replay';
COMMENT ON CONSTRAINT upcasters_pkey ON inbox.upcasters IS 'one upcaster for each step';
COMMENT ON CONSTRAINT upcasters_from_version ON inbox.upcasters IS 'versions begin with 1';
COMMENT ON INDEX inbox.consumers_pkey IS 'finds a consumer';
COMMENT ON INDEX inbox.partitions_pkey IS 'lists the partitions of a consumer';
COMMENT ON INDEX inbox.failures_pkey IS 'finds the failures of an event';
COMMENT ON INDEX inbox.upcasters_pkey IS 'finds an upcaster';

SELECT pg_catalog.pg_extension_config_dump('inbox.numbers', '');
SELECT pg_catalog.pg_extension_config_dump('inbox.consumers', '');
SELECT pg_catalog.pg_extension_config_dump('inbox.partitions', '');
SELECT pg_catalog.pg_extension_config_dump('inbox.failures', '');
SELECT pg_catalog.pg_extension_config_dump('inbox.upcasters', '');

---------------------------------------------------------------- partitions

CREATE FUNCTION inbox.make_partition(for_consumer text, of_consumer_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET default_tablespace = '' SET default_table_access_method = 'heap' AS $$
DECLARE
	number CONSTANT integer := nextval('inbox.numbers');
BEGIN
	EXECUTE format('CREATE TABLE inbox.events_%1$s (CONSTRAINT events_%1$s_pkey PRIMARY KEY (event_id), '
		'CONSTRAINT events_%1$s_consumer CHECK (consumer = %2$L)) INHERITS (inbox.events)', number, for_consumer);
	EXECUTE format('COMMENT ON TABLE inbox.events_%s IS %L', number, format('partition of inbox.events: consumer %s', for_consumer));
	EXECUTE format('COMMENT ON INDEX inbox.events_%s_pkey IS ''finds an event''', number);
	EXECUTE format('COMMENT ON CONSTRAINT events_%1$s_pkey ON inbox.events_%1$s IS ''an event once''', number);
	EXECUTE format('COMMENT ON CONSTRAINT events_%1$s_consumer ON inbox.events_%1$s IS ''whose it is: other partitions need not be read''', number);
	EXECUTE format('REVOKE ALL ON inbox.events_%s FROM PUBLIC', number);
	INSERT INTO inbox.partitions (consumer, number, begins, consumer_id) VALUES (for_consumer, number, clock_timestamp(), of_consumer_id);
END
$$;
COMMENT ON FUNCTION inbox.make_partition(text, integer) IS
$$Internal: makes the newest partition of a consumer. The caller holds the consumer's row.
No errors. Locks: inbox.events in SHARE UPDATE EXCLUSIVE mode, to the end of the transaction.$$;

CREATE FUNCTION inbox.make_consumer(new_consumer text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET default_tablespace = '' AS $$
DECLARE
	id CONSTANT integer := nextval('inbox.numbers');
BEGIN
	BEGIN
		INSERT INTO inbox.consumers (consumer, consumer_id) VALUES (new_consumer, id);
	EXCEPTION WHEN unique_violation THEN
		RETURN;	-- in REPEATABLE READ, ON CONFLICT would end the transaction here
	END;
	EXECUTE format('CREATE SEQUENCE inbox.duplicates_%s', id);
	EXECUTE format('COMMENT ON SEQUENCE inbox.duplicates_%s IS %L', id, format('counts duplicates: consumer %s', new_consumer));
	EXECUTE format('REVOKE ALL ON SEQUENCE inbox.duplicates_%s FROM PUBLIC', id);
	PERFORM inbox.make_partition(new_consumer, id);
END
$$;
COMMENT ON FUNCTION inbox.make_consumer(text) IS
$$Internal: makes a consumer with its first partition, unless it exists. Waits for an open transaction that makes the same one.$$;

CREATE FUNCTION inbox.forget_before(of_consumer text, cutoff timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
	candidate record;
	held bigint;
	younger boolean;
	forgotten bigint := 0;
BEGIN
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'to forget events needs a READ COMMITTED transaction' USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'What a transaction of a stricter isolation level sees may be older than the latest events.';
	END IF;
	FOR candidate IN
		SELECT p.number FROM inbox.partitions p
		WHERE p.consumer = of_consumer AND p.begins <= cutoff
			AND EXISTS (SELECT FROM inbox.partitions n WHERE n.consumer = of_consumer AND n.number > p.number)
		ORDER BY p.number
	LOOP
		-- In an old snapshot it may be listed still.
		CONTINUE WHEN to_regclass(format('inbox.events_%s', candidate.number)) IS NULL;
		BEGIN
			EXECUTE format('SELECT EXISTS (SELECT FROM inbox.events_%s e WHERE e.consumed_at > $1)', candidate.number)
				INTO younger USING cutoff;
			CONTINUE WHEN younger;
			-- The row first: who reads it from now on waits, and does not wait with a lock.
			DELETE FROM inbox.partitions p WHERE p.consumer = of_consumer AND p.number = candidate.number;
			EXECUTE format('LOCK TABLE inbox.events_%s', candidate.number);
			-- Again, now that nobody inserts: a transaction may have committed meanwhile.
			EXECUTE format('SELECT count(*), coalesce(max(e.consumed_at) > $1, false) FROM inbox.events_%s e', candidate.number)
				INTO held, younger USING cutoff;
			IF younger THEN
				RAISE EXCEPTION 'inbox.events_% has a younger event', candidate.number USING ERRCODE = 'object_in_use';
			END IF;
			EXECUTE format('DROP TABLE inbox.events_%s', candidate.number);
			forgotten := forgotten + held;
		EXCEPTION WHEN lock_not_available OR object_in_use THEN
			NULL;	-- the next time
		END;
	END LOOP;
	RETURN forgotten;
END
$$;
COMMENT ON FUNCTION inbox.forget_before(text, timestamptz) IS
$$Internal: drops the partitions of a consumer, except the newest, that hold no event consumed after cutoff. One that is in use for more than 50 ms is left for the next time. Returns the number of events in them. Reads what it drops twice.
Errors: 55000 above READ COMMITTED.$$;

CREATE FUNCTION inbox.forget(consumer text, older_than interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	cutoff timestamptz;
	id integer;
	newest integer;
	is_old boolean;
BEGIN
	IF consumer IS NULL OR older_than IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN consumer IS NULL THEN 'consumer' ELSE 'older_than' END
			USING ERRCODE = 'null_value_not_allowed';
	ELSIF older_than < interval '0' OR older_than > interval '100 years' THEN
		RAISE EXCEPTION 'older_than must be between 0 and 100 years, not %', older_than USING ERRCODE = 'invalid_parameter_value';
	END IF;
	cutoff := clock_timestamp() - older_than;
	SELECT c.consumer_id INTO id FROM inbox.consumers c WHERE c.consumer = forget.consumer FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'consumer "%" does not exist', consumer USING ERRCODE = 'undefined_object';
	END IF;
	SELECT max(p.number) INTO newest FROM inbox.partitions p WHERE p.consumer = forget.consumer AND p.begins <= cutoff
		AND NOT EXISTS (SELECT FROM inbox.partitions n WHERE n.consumer = forget.consumer AND n.number > p.number);
	IF newest IS NOT NULL THEN
		EXECUTE format('SELECT max(e.consumed_at) <= $1 FROM inbox.events_%s e', newest) INTO is_old USING cutoff;
		IF is_old THEN
			PERFORM inbox.make_partition(consumer, id);
		END IF;
	END IF;
	RETURN inbox.forget_before(consumer, cutoff);
END
$$;
COMMENT ON FUNCTION inbox.forget(text, interval) IS
$$Forgets events of a consumer that were consumed longer ago than older_than, and returns how many: an event that is forgotten would be new. It drops partitions whose events are all that old, so it may keep some, and never forgets a younger one.
Errors: 22004 NULL; 22023 a negative older_than, or one above 100 years; 55000 above READ COMMITTED; 42704 no such consumer. Locks: the consumer's row, and what it drops; a partition that is in use for more than 50 ms is left. Commit at once: receives of this consumer wait for the end of the transaction. Cost: reads the events that it forgets twice.$$;

CREATE FUNCTION inbox.set_window(consumer text, remember_for interval) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF consumer IS NULL THEN
		RAISE EXCEPTION 'consumer must not be null' USING ERRCODE = 'null_value_not_allowed';
	ELSIF octet_length(consumer) NOT BETWEEN 1 AND 63 THEN
		RAISE EXCEPTION 'consumer must have 1 to 63 bytes: "%"', consumer USING ERRCODE = 'invalid_parameter_value';
	ELSIF remember_for <= interval '0' OR remember_for > interval '100 years' THEN
		RAISE EXCEPTION 'remember_for must be positive, and at most 100 years, not %', remember_for
			USING ERRCODE = 'invalid_parameter_value', HINT = 'NULL remembers for ever.';
	END IF;
	IF NOT EXISTS (SELECT FROM inbox.consumers c WHERE c.consumer = set_window.consumer) THEN
		PERFORM inbox.make_consumer(consumer);
	END IF;
	UPDATE inbox.consumers c SET remember_for = set_window.remember_for, window_chosen = true WHERE c.consumer = set_window.consumer;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'could not serialize access due to concurrent update' USING ERRCODE = 'serialization_failure',
			DETAIL = format('Consumer "%s" was made after the snapshot.', consumer), HINT = 'Try the transaction again.';
	END IF;
END
$$;
COMMENT ON FUNCTION inbox.set_window(text, interval) IS
$$Sets for how long events of a consumer are remembered at least, and makes the consumer if there is none. remember_for: longer than the source can deliver an event again: the broker's retention and the longest outage; NULL = for ever. maintain() forgets by it.
Errors: 22004 NULL consumer; 22023 its length, or a window that is not positive, or above 100 years; above READ COMMITTED a consumer that was made or changed after the snapshot is 40001. Locks: the consumer's row.$$;

CREATE FUNCTION inbox.maintain() RETURNS TABLE (consumer text, made integer, forgotten bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
	c record;
	newest record;
	used boolean;
BEGIN
	FOR c IN SELECT s.consumer, s.consumer_id, s.remember_for FROM inbox.consumers s WHERE s.remember_for IS NOT NULL
		ORDER BY s.consumer FOR UPDATE SKIP LOCKED
	LOOP
		consumer := c.consumer;
		made := 0;
		SELECT p.number, p.begins INTO newest FROM inbox.partitions p WHERE p.consumer = c.consumer ORDER BY p.number DESC LIMIT 1;
		BEGIN
			IF newest.begins < clock_timestamp() - c.remember_for / 4 THEN
				EXECUTE format('SELECT EXISTS (SELECT FROM inbox.events_%s)', newest.number) INTO used;
				IF used THEN
					PERFORM inbox.make_partition(c.consumer, c.consumer_id);
					made := 1;
				END IF;
			END IF;
		EXCEPTION WHEN lock_not_available OR undefined_table THEN
			NULL;	-- the next time; check() reports a table that is missing
		END;
		forgotten := inbox.forget_before(c.consumer, clock_timestamp() - c.remember_for);
		IF made > 0 OR forgotten > 0 THEN
			RETURN NEXT;
		END IF;
	END LOOP;
	-- Failures of events that succeeded all the same, in another session. Others wait for a person.
	BEGIN
		DELETE FROM inbox.failures f
		WHERE EXISTS (SELECT FROM inbox.events e WHERE e.consumer = f.consumer AND e.event_id = f.event_id);
	EXCEPTION WHEN lock_not_available THEN
		NULL;	-- the next time
	END;
END
$$;
COMMENT ON FUNCTION inbox.maintain() IS
$$Begins a new partition for each consumer whose newest is older than a quarter of its window, and drops the partitions that the window has left behind. Returns the consumers for which it did something. Call it at least eight times a window, for instance daily. If it is not called, nothing is forgotten, and nothing else fails.
Errors: 55000 above READ COMMITTED. Locks: the rows of the consumers, which are skipped if another session holds them; inbox.events in SHARE UPDATE EXCLUSIVE mode when it makes a partition; what it drops. What it cannot lock in 50 ms is left for the next time. Commit at once. Cost: reads what it drops twice.$$;

---------------------------------------------------------------- receive

CREATE FUNCTION inbox.receive(consumer text, event_id uuid, source text, event_type text, payload jsonb DEFAULT NULL, schema_version integer DEFAULT NULL)
RETURNS boolean LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_inbox_receive';
COMMENT ON FUNCTION inbox.receive(text, uuid, text, text, jsonb, integer) IS
$$Receives an event in the caller's transaction. true: for the first time, so process it and commit. false: it has been processed, or was put aside (inbox.failures): acknowledge it to its source and go on.
consumer: who processes it, 1 to 63 bytes; the first receive makes it. event_id: the same each time the event is delivered. source, event_type: for inbox.log. payload: kept if it is given. schema_version: the payload's, at least 1; kept if it is given.
Errors: 22004 NULL; 22023 an empty or too long value; 25006 a read-only transaction; 55000 a partition is missing or was altered. Locks: waits for the end of an open transaction that received the same event, in every isolation level; the first receive of a consumer waits for one that makes another. Cost: a row, and a look-up in the newest partition of the consumer and in each older one that has lower and higher ids.$$;

CREATE FUNCTION inbox.receive_batch(consumer text, events jsonb) RETURNS SETOF uuid
LANGUAGE c VOLATILE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_inbox_receive_batch';
COMMENT ON FUNCTION inbox.receive_batch(text, jsonb) IS
$$Receives an array of events, objects with the keys event_id, source, event_type, payload and schema_version, and returns the event_id of those that are new, in their order. Of an event that comes twice the first is new. Either all that are new are received, or none.
Errors, locks: as inbox.receive, the CONTEXT of an error naming the element; 22023 also an unknown key, a value of another type, something else than objects, or more events than outbox.max_batch. Two batches with the same events do not deadlock. Cost: some microseconds an event.$$;

CREATE FUNCTION inbox.finish(consumer text, event_id uuid) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_inbox_finish';
COMMENT ON FUNCTION inbox.finish(text, uuid) IS
$$Optional: notes in inbox.log how long the processing of an event took, from its receipt to now. Called again, it notes the longer time.
Errors: 22004 NULL; P0002 the event was not received. Locks: the event's row; waits for an open transaction that received or finished it. Cost: the row is written again.$$;

---------------------------------------------------------------- failures

CREATE FUNCTION inbox.failed(consumer text, event_id uuid, error text, max_failures integer DEFAULT 5, source text DEFAULT NULL,
	event_type text DEFAULT NULL, payload jsonb DEFAULT NULL, schema_version integer DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing CONSTANT text := CASE WHEN consumer IS NULL THEN 'consumer' WHEN event_id IS NULL THEN 'event_id'
		WHEN error IS NULL THEN 'error' WHEN max_failures IS NULL THEN 'max_failures' END;
	now CONSTANT timestamptz := clock_timestamp();
	-- As the ledger keeps texts.
	kept CONSTANT text := CASE WHEN octet_length(error) <= 8192 THEN error ELSE left(error, 2000) || ' [cut: ' || octet_length(error) || ' bytes]' END;
	dead boolean;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	ELSIF max_failures < 1 THEN
		RAISE EXCEPTION 'max_failures must be at least 1, not %', max_failures USING ERRCODE = 'invalid_parameter_value';
	ELSIF octet_length(consumer) NOT BETWEEN 1 AND 63 THEN
		RAISE EXCEPTION 'consumer must have 1 to 63 bytes: "%"', consumer USING ERRCODE = 'invalid_parameter_value';
	END IF;
	-- Another session succeeded meanwhile.
	IF EXISTS (SELECT FROM inbox.events e WHERE e.consumer = failed.consumer AND e.event_id = failed.event_id) THEN
		RETURN 'retry';
	END IF;
	INSERT INTO inbox.failures AS f (consumer, event_id, failures, dead_at, source, event_type, schema_version, payload, error, first_failed_at, last_failed_at)
	VALUES (failed.consumer, failed.event_id, 1, CASE WHEN max_failures <= 1 THEN now END, failed.source, failed.event_type,
		failed.schema_version, failed.payload, kept, now, now)
	ON CONFLICT ON CONSTRAINT failures_pkey DO UPDATE SET
		failures = f.failures + 1,
		dead_at = CASE WHEN f.dead_at IS NOT NULL THEN f.dead_at WHEN f.failures + 1 >= max_failures THEN now END,
		source = coalesce(excluded.source, f.source), event_type = coalesce(excluded.event_type, f.event_type),
		schema_version = coalesce(excluded.schema_version, f.schema_version), payload = coalesce(excluded.payload, f.payload),
		error = excluded.error, last_failed_at = now
	RETURNING f.dead_at IS NOT NULL INTO dead;
	RETURN CASE WHEN dead THEN 'dead' ELSE 'retry' END;
END
$$;
COMMENT ON FUNCTION inbox.failed(text, uuid, text, integer, text, text, jsonb, integer) IS
$$Counts a failure of an event, in a transaction of its own after the rollback. 'retry': try it again. 'dead': it failed max_failures times and is put aside: inbox.receive returns false for it, until inbox.replay.
error: the last one is kept, cut if it is longer than 8 kB. source, event_type, payload, schema_version: kept in inbox.failures, for the person who looks at it. An event that was processed meanwhile is 'retry': receive then returns false.
Errors: 22004 NULL; 22023 max_failures below 1. Locks: the event's row in inbox.failures. Cost: a look-up in each partition, and a row.$$;

CREATE FUNCTION inbox.replay(consumer text, event_id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF consumer IS NULL OR event_id IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN consumer IS NULL THEN 'consumer' ELSE 'event_id' END
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	UPDATE inbox.failures f SET dead_at = NULL, failures = 0, replayed_at = clock_timestamp()
	WHERE f.consumer = replay.consumer AND f.event_id = replay.event_id AND f.dead_at IS NOT NULL;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'event % of consumer "%" was not put aside', event_id, consumer
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'inbox.failures lists those with dead_at.';
	END IF;
END
$$;
COMMENT ON FUNCTION inbox.replay(text, uuid) IS
$$Lets in again an event that was put aside: the next inbox.receive returns true, and failures count from 0. Deliver it again from its source, or from its row in inbox.failures, which stays until it has been received.
Errors: 22004 NULL; 55000 it was not put aside. Locks: its row in inbox.failures.$$;

---------------------------------------------------------------- versions of events

-- In a schema that the owner of the tables may not use: by the catalogs.
CREATE FUNCTION inbox.registered_upcasters() RETURNS TABLE (event_type text, from_version integer, function text, function_owner text, is_sound boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	SELECT u.event_type, u.from_version, format('%I.%I', u.function_schema, u.function_name), u.function_owner,
		coalesce(pg_get_userbyid(p.proowner) = u.function_owner::name, false)
	FROM inbox.upcasters u
	LEFT JOIN pg_namespace n ON n.nspname = u.function_schema::name
	LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = u.function_name::name
		AND p.proargtypes = (('jsonb'::regtype::oid)::text || ' ' || ('jsonb'::regtype::oid)::text)::oidvector;
END;
COMMENT ON FUNCTION inbox.registered_upcasters() IS
$$Internal: the upcasters with the quoted names of their functions; is_sound: the function is there and has the owner that it had.$$;

CREATE FUNCTION inbox.store_upcaster(event_type text, from_version integer, function regprocedure) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	f record;
	existing text;
BEGIN
	SELECT n.nspname, p.proname, pg_get_userbyid(p.proowner) AS owner INTO STRICT f
	FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = function;
	INSERT INTO inbox.upcasters AS u (event_type, from_version, function_schema, function_name, function_owner)
	VALUES (store_upcaster.event_type, store_upcaster.from_version, f.nspname, f.proname, f.owner)
	ON CONFLICT ON CONSTRAINT upcasters_pkey DO UPDATE SET function_owner = excluded.function_owner
		WHERE u.function_schema = excluded.function_schema AND u.function_name = excluded.function_name;
	IF NOT FOUND THEN
		SELECT format('%I.%I', u.function_schema, u.function_name) INTO existing FROM inbox.upcasters u
		WHERE u.event_type = store_upcaster.event_type AND u.from_version = store_upcaster.from_version;
		RAISE EXCEPTION 'event type "%" has an upcaster from version % already: %', event_type, from_version, existing
			USING ERRCODE = 'duplicate_object', HINT = 'Use inbox.drop_upcaster first.';
	END IF;
END
$$;
COMMENT ON FUNCTION inbox.store_upcaster(text, integer, regprocedure) IS
$$Internal: what add_upcaster does as the owner of the tables. Who may call it may call add_upcaster.$$;

-- As its caller, and with its search_path: the name is looked up as in a statement of the caller.
CREATE FUNCTION inbox.add_upcaster(event_type text, from_version integer, function text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	missing CONSTANT text := CASE WHEN event_type IS NULL THEN 'event_type' WHEN from_version IS NULL THEN 'from_version'
		WHEN function IS NULL THEN 'function' END;
	named pg_catalog.regprocedure;
	f record;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	ELSIF event_type OPERATOR(pg_catalog.=) '' OR from_version OPERATOR(pg_catalog.<) 1 THEN
		RAISE EXCEPTION 'event_type must not be empty, and from_version must be at least 1, not %', from_version
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	named := pg_catalog.to_regprocedure(CASE WHEN pg_catalog.strpos(function, '(') OPERATOR(pg_catalog.>) 0 THEN function
		ELSE function OPERATOR(pg_catalog.||) '(pg_catalog.jsonb, pg_catalog.jsonb)' END);
	SELECT p.proowner, p.prokind, p.proretset, p.prorettype, p.proargtypes INTO f FROM pg_catalog.pg_proc p
	WHERE p.oid OPERATOR(pg_catalog.=) named;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no function %(payload jsonb, headers jsonb)', function USING ERRCODE = 'undefined_function';
	ELSIF f.prokind OPERATOR(pg_catalog.<>) 'f' OR f.proretset OR f.prorettype OPERATOR(pg_catalog.<>) 'pg_catalog.jsonb'::pg_catalog.regtype
		OR pg_catalog.oidvectortypes(f.proargtypes) OPERATOR(pg_catalog.<>) 'jsonb, jsonb' THEN
		RAISE EXCEPTION 'function % cannot be an upcaster', named USING ERRCODE = 'invalid_function_definition',
			DETAIL = 'An upcaster is a function f(payload jsonb, headers jsonb) RETURNS jsonb.';
	ELSIF NOT pg_catalog.pg_has_role(current_user, f.proowner, 'MEMBER') THEN
		RAISE EXCEPTION 'permission denied to make function % an upcaster', named USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Ask a member of its owner, %I.', pg_catalog.pg_get_userbyid(f.proowner));
	END IF;
	PERFORM inbox.store_upcaster(event_type, from_version, named);
END
$$;
COMMENT ON FUNCTION inbox.add_upcaster(text, integer, text) IS
$$Registers a function f(payload jsonb, headers jsonb) RETURNS jsonb that lifts the payload of an event type from from_version to the next version. function: its name, looked up as in a statement of yours; it is kept with its schema. You must be a member of its owner. The same one again changes nothing.
Errors: 22004 NULL; 22023 an empty event_type, or a version below 1; 42883 no such function; 42P13 another kind of function; 42501 you are not a member of its owner; 42710 there is another upcaster for this step.$$;

CREATE FUNCTION inbox.drop_upcaster(event_type text, from_version integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	DELETE FROM inbox.upcasters u WHERE u.event_type = drop_upcaster.event_type AND u.from_version = drop_upcaster.from_version;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'event type "%" has no upcaster from version %', event_type, from_version USING ERRCODE = 'undefined_object';
	END IF;
END
$$;
COMMENT ON FUNCTION inbox.drop_upcaster(text, integer) IS
$$Removes the upcaster of one step. Errors: 42704 there is none.$$;

CREATE FUNCTION inbox.upcast_steps(event_type text, from_version integer, to_version integer)
RETURNS TABLE (step integer, function text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target CONSTANT integer := coalesce(to_version,
		(SELECT max(u.from_version) + 1 FROM inbox.upcasters u WHERE u.event_type = upcast_steps.event_type), from_version);
	u record;
BEGIN
	-- One version at a time, always upward: there is no way to come back.
	FOR version IN from_version .. target - 1 LOOP
		SELECT r.function, r.function_owner, r.is_sound INTO u FROM inbox.registered_upcasters() r
		WHERE r.event_type = upcast_steps.event_type AND r.from_version = version;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'event type "%" has no upcaster from version % to %', event_type, version, version + 1
				USING ERRCODE = 'undefined_function', DETAIL = format('Version %s is to become version %s.', from_version, target),
					HINT = format('Register one: inbox.add_upcaster(%L, %s, ...).', event_type, version);
		ELSIF NOT u.is_sound THEN
			RAISE EXCEPTION 'the upcaster % of event type "%" is gone, or has another owner', u.function, event_type
				USING ERRCODE = 'object_not_in_prerequisite_state',
					DETAIL = format('Its owner was %s when it was registered.', u.function_owner),
					HINT = format('Register it again: inbox.drop_upcaster(%L, %s), then inbox.add_upcaster.', event_type, version);
		END IF;
		step := version;
		function := u.function;
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION inbox.upcast_steps(text, integer, integer) IS
$$Internal: the functions that inbox.upcast calls, in their order, or the error that it raises.$$;

-- As its caller: an upcaster may do what who calls upcast may do, and no more.
CREATE FUNCTION inbox.upcast(event_type text, INOUT schema_version integer, INOUT payload jsonb, to_version integer DEFAULT NULL, headers jsonb DEFAULT '{}')
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	step record;
BEGIN
	IF event_type IS NULL THEN
		RAISE EXCEPTION 'event_type must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	schema_version := coalesce(schema_version, 1);
	IF schema_version < 1 THEN
		RAISE EXCEPTION 'schema_version must be at least 1, not %', schema_version USING ERRCODE = 'invalid_parameter_value';
	ELSIF to_version < schema_version THEN
		RAISE EXCEPTION 'version % of event type "%" cannot become version %', schema_version, event_type, to_version
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'Upcasters only lift.';
	END IF;
	FOR step IN SELECT s.step, s.function FROM inbox.upcast_steps(event_type, schema_version, to_version) s LOOP
		-- The name was quoted when it was registered.
		EXECUTE format('SELECT %s($1, $2)', step.function) INTO payload
			USING payload, coalesce(headers, '{}') || jsonb_build_object('schema_version', step.step);
		IF payload IS NULL THEN
			RAISE EXCEPTION 'the upcaster % of event type "%" returned NULL', step.function, event_type
				USING ERRCODE = 'null_value_not_allowed';
		END IF;
		schema_version := step.step + 1;
	END LOOP;
END
$$;
COMMENT ON FUNCTION inbox.upcast(text, integer, jsonb, integer, jsonb) IS
$$Lifts a payload from schema_version (NULL = 1) to to_version, one version at a time, and returns the version and the payload. to_version: NULL = the one that the last upcaster of the event type returns. headers: what the upcasters get as such, with schema_version set to the version that they take.
The upcasters run with your rights, with search_path pg_catalog, pg_temp, unless they set another.
Errors: 22004 NULL, also from an upcaster; 22023 a version below 1, or one to which it would have to sink; 42883 a step is missing, which the message names; 55000 an upcaster is gone, or has another owner than when it was registered; those of the upcasters.$$;

---------------------------------------------------------------- views

CREATE VIEW inbox.log WITH (security_barrier) AS
	SELECT e.consumer, e.event_id, e.source, e.event_type, e.payload, e.consumed_at, e.processing_duration_ms, e.schema_version
	FROM inbox.events e;
COMMENT ON VIEW inbox.log IS 'Events that were received and are remembered. consumer as a constant reads its partitions alone; event_id is found by index.';
COMMENT ON COLUMN inbox.log.consumer IS 'who received it';
COMMENT ON COLUMN inbox.log.event_id IS 'the event, as its source names it';
COMMENT ON COLUMN inbox.log.source IS 'where it came from';
COMMENT ON COLUMN inbox.log.event_type IS 'what happened';
COMMENT ON COLUMN inbox.log.payload IS 'the payload, if receive was given one';
COMMENT ON COLUMN inbox.log.consumed_at IS 'when receive accepted it';
COMMENT ON COLUMN inbox.log.processing_duration_ms IS 'from its receipt to finish; NULL = finish was not called';
COMMENT ON COLUMN inbox.log.schema_version IS 'version of its payload, if receive was given one';

CREATE FUNCTION inbox.event_time(event_id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN CASE WHEN substr(event_id::text, 15, 1) = '7'
	THEN to_timestamp((('x' || translate(left(event_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)::double precision) END;
COMMENT ON FUNCTION inbox.event_time(uuid) IS 'The time that a UUIDv7 carries; NULL for other uuids.';

CREATE FUNCTION inbox.last_event(of_consumer text, OUT consumed_at timestamptz, OUT event_id uuid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	partition record;
	first_block bigint;
BEGIN
	FOR partition IN
		SELECT c.oid, p.number FROM inbox.partitions p JOIN pg_class c ON c.oid = to_regclass('inbox.events_' || p.number)
		WHERE p.consumer = of_consumer AND has_table_privilege(c.oid, 'SELECT') ORDER BY p.number DESC
	LOOP
		first_block := greatest(pg_relation_size(partition.oid) / current_setting('block_size')::bigint - 128, 0);
		BEGIN
			EXECUTE format('SELECT e.consumed_at, e.event_id FROM inbox.events_%s e WHERE e.ctid >= %L::tid ORDER BY e.consumed_at DESC LIMIT 1',
				partition.number, format('(%s,0)', first_block)) INTO consumed_at, event_id;
		EXCEPTION WHEN undefined_table THEN
			NULL;	-- it was dropped meanwhile
		END;
		EXIT WHEN event_id IS NOT NULL;
	END LOOP;
END
$$;
COMMENT ON FUNCTION inbox.last_event(text) IS 'Internal: the latest event of a consumer, among those at the end of its newest partition that has any. Reads 1 MB at most.';

CREATE FUNCTION inbox.consumer_stats()
RETURNS TABLE (consumer text, remember_for interval, partitions bigint, events bigint, last_consumed_at timestamptz, lag interval,
	duplicates bigint, failing bigint, dead bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	SELECT c.consumer, c.remember_for, p.partitions, p.events, l.consumed_at, l.consumed_at - inbox.event_time(l.event_id),
		coalesce((SELECT pg_sequence_last_value(s.oid) FROM pg_class s
			WHERE s.relnamespace = 'inbox'::regnamespace AND s.relname = 'duplicates_' || c.consumer_id AND s.relkind = 'S'), 0),
		f.failing, f.dead
	FROM inbox.consumers c
	CROSS JOIN LATERAL (
		SELECT count(*) AS partitions, coalesce(sum(greatest(pg_stat_get_live_tuples(t.oid), t.reltuples::bigint, 0)), 0)::bigint AS events
		FROM inbox.partitions p LEFT JOIN pg_class t ON t.relnamespace = 'inbox'::regnamespace AND t.relname = 'events_' || p.number
		WHERE p.consumer = c.consumer) p
	CROSS JOIN LATERAL inbox.last_event(c.consumer) l
	CROSS JOIN LATERAL (
		SELECT count(*) FILTER (WHERE f.dead_at IS NULL) AS failing, count(f.dead_at) AS dead
		FROM inbox.failures f WHERE f.consumer = c.consumer) f;
END;
COMMENT ON FUNCTION inbox.consumer_stats() IS 'What inbox.stats shows. Locks: those of reading. Cost: for each consumer its failures, and 1 MB of its newest partition.';

CREATE VIEW inbox.stats WITH (security_barrier) AS
	SELECT s.consumer, s.remember_for, s.partitions, s.events, s.last_consumed_at, s.lag, s.duplicates, s.failing, s.dead
	FROM inbox.consumer_stats() s;
COMMENT ON VIEW inbox.stats IS 'Each consumer with what it has received.';
COMMENT ON COLUMN inbox.stats.consumer IS 'the consumer';
COMMENT ON COLUMN inbox.stats.remember_for IS 'its window; NULL = for ever';
COMMENT ON COLUMN inbox.stats.partitions IS 'its partitions';
COMMENT ON COLUMN inbox.stats.events IS 'events that it remembers, as the server estimates';
COMMENT ON COLUMN inbox.stats.last_consumed_at IS 'when it received its latest event';
COMMENT ON COLUMN inbox.stats.lag IS 'how old that event was then, by the time in its event_id; NULL = that is no UUIDv7';
COMMENT ON COLUMN inbox.stats.duplicates IS 'receives that returned false, and repeats in batches, also of transactions that rolled back; a crash of the server may add up to 32';
COMMENT ON COLUMN inbox.stats.failing IS 'events that failed and are tried again';
COMMENT ON COLUMN inbox.stats.dead IS 'events that were put aside';

CREATE FUNCTION inbox.prometheus() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH consumer AS (
		SELECT s.*, '{consumer="' || replace(replace(replace(s.consumer, E'\\', E'\\\\'), '"', E'\\"'), E'\n', E'\\n') || '"} ' AS l
		FROM inbox.consumer_stats() s
	), metric(consumer, name, type, help, sample) AS (
		SELECT c.consumer, m.*
		FROM consumer c CROSS JOIN LATERAL (VALUES
			('events', 'gauge', 'Events that are remembered, as the server estimates.', c.l || c.events),
			('partitions', 'gauge', 'Partitions of the consumer.', c.l || c.partitions),
			('last_consumed_age_seconds', 'gauge', 'How long ago the latest event was received.', c.l || trim_scale(extract(epoch FROM clock_timestamp() - c.last_consumed_at))),
			('lag_seconds', 'gauge', 'How old the latest event was when it was received, by the time in its event_id.', c.l || trim_scale(extract(epoch FROM c.lag))),
			('duplicates_total', 'counter', 'Receives of events that were not new.', c.l || c.duplicates),
			('failing', 'gauge', 'Events that failed and are tried again.', c.l || c.failing),
			('dead', 'gauge', 'Events that were put aside.', c.l || c.dead)) m(name, type, help, sample)
		WHERE m.sample IS NOT NULL
	), shown AS (
		SELECT m.name, m.type, m.help, string_agg('inbox_' || m.name || m.sample || chr(10), '' ORDER BY m.consumer) AS samples
		FROM metric m GROUP BY m.name, m.type, m.help
	)
	SELECT coalesce(string_agg('# HELP inbox_' || s.name || ' ' || s.help || chr(10) || '# TYPE inbox_' || s.name || ' ' || s.type || chr(10) || s.samples,
		'' ORDER BY s.name), '')
	FROM shown s;
END;
COMMENT ON FUNCTION inbox.prometheus() IS
$$What inbox.stats shows, in the text exposition format of Prometheus, by consumer; times in seconds. A consumer without events, or whose ids carry no time, has no sample of the ages.
No arguments, no errors. Locks, cost: as inbox.consumer_stats().$$;

---------------------------------------------------------------- check

CREATE FUNCTION inbox.check() RETURNS TABLE (severity text, object text, problem text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH children AS (
		SELECT c.oid, c.relname, c.relrowsecurity, c.relpersistence, c.relowner FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'inbox.events'::regclass
	), listed AS (
		SELECT p.consumer, p.number, p.begins, 'events_' || p.number AS name, max(p.number) OVER (PARTITION BY p.consumer) = p.number AS newest
		FROM inbox.partitions p
	)
	SELECT 'error', 'inbox.' || l.name, format('this partition of consumer %s does not exist: its events would be new, so receive fails', quote_literal(l.consumer))
	FROM listed l WHERE NOT EXISTS (SELECT FROM children c WHERE c.relname = l.name)
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, 'inbox.partitions does not list it: its events would be new'
	FROM children c WHERE NOT EXISTS (SELECT FROM listed l WHERE l.name = c.relname)
	UNION ALL
	SELECT 'error', 'consumer ' || quote_ident(c.consumer), 'has no partition: receive fails'
	FROM inbox.consumers c WHERE NOT EXISTS (SELECT FROM listed l WHERE l.consumer = c.consumer)
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, 'has no primary key (event_id)'
	FROM children c
	WHERE NOT EXISTS (
		SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indexrelid
		WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indnatts = 1 AND a.attnum = 1 AND a.attname = 'event_id')
	UNION ALL
	SELECT 'error', 'inbox.' || w.name, 'has no primary key (' || w.columns || '), so receive fails'
	FROM (VALUES ('consumers', 'consumer'), ('partitions', 'consumer, number'), ('failures', 'consumer, event_id')) w(name, columns)
	WHERE NOT EXISTS (
		SELECT FROM pg_index i
		WHERE i.indrelid = to_regclass('inbox.' || w.name) AND i.indisprimary AND i.indisvalid
			AND (SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = i.indexrelid) = w.columns)
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, format('has the trigger %s, so receive fails', quote_ident(t.tgname))
	FROM children c JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND (t.tgtype & 4) <> 0
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, 'has row level security, so receive fails' FROM children c WHERE c.relrowsecurity
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, 'is unlogged: a crash makes its events new' FROM children c WHERE c.relpersistence = 'u'
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, format('belongs to %s, not to inbox_owner', quote_ident(pg_get_userbyid(c.relowner)))
	FROM pg_class c WHERE c.relnamespace = 'inbox'::regnamespace AND c.relkind IN ('r', 'v', 'S') AND pg_get_userbyid(c.relowner) <> 'inbox_owner'
	UNION ALL
	SELECT 'error', 'inbox.' || c.relname, format('%s may %s', CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, a.privilege_type)
	FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
	WHERE c.relnamespace = 'inbox'::regnamespace AND a.grantee <> c.relowner AND (a.grantee = 0 OR a.privilege_type <> 'SELECT')
	UNION ALL
	SELECT 'error', 'function inbox.' || p.proname, 'PUBLIC may EXECUTE'
	FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
	WHERE p.pronamespace = 'inbox'::regnamespace AND a.grantee = 0
	UNION ALL
	SELECT 'error', 'role ' || r.rolname, 'has more rights than the extension may build on'
	FROM pg_roles r
	WHERE r.rolname IN ('inbox_owner', 'inbox_consumer', 'inbox_operator', 'inbox_readonly')
		AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolbypassrls)
	UNION ALL
	SELECT 'warning', 'consumer ' || quote_ident(c.consumer),
		format('remembers events for %s, which was not chosen: use inbox.set_window with the retention of its source and the longest outage', c.remember_for)
	FROM inbox.consumers c WHERE NOT c.window_chosen
	UNION ALL
	SELECT 'warning', 'consumer ' || quote_ident(s.consumer),
		format('received an event that was %s old, more than half of its window of %s: its source can deliver events that are forgotten', s.lag, s.remember_for)
	FROM inbox.consumer_stats() s WHERE s.lag > s.remember_for / 2
	UNION ALL
	SELECT 'warning', 'consumer ' || quote_ident(c.consumer), format('its newest partition is of %s: inbox.maintain() has not run', l.begins)
	FROM inbox.consumers c JOIN listed l ON l.consumer = c.consumer AND l.newest
	WHERE l.begins < clock_timestamp() - c.remember_for / 2 AND EXISTS (SELECT FROM inbox.events e WHERE e.consumer = c.consumer AND e.consumed_at > l.begins + c.remember_for / 2)
	UNION ALL
	SELECT 'warning', 'consumer ' || quote_ident(f.consumer), format('events were put aside, %s in all: see inbox.failures and inbox.replay', count(*))
	FROM inbox.failures f WHERE f.dead_at IS NOT NULL GROUP BY f.consumer
	UNION ALL
	SELECT 'error', 'event type ' || quote_ident(u.event_type), format('the upcaster %s from version %s is gone, or has another owner than %s', u.function, u.from_version, quote_ident(u.function_owner))
	FROM inbox.registered_upcasters() u WHERE NOT u.is_sound
	UNION ALL
	SELECT 'warning', 'event type ' || quote_ident(g.event_type), format('has no upcaster from version %s to %s', g.version, g.next)
	FROM (
		SELECT u.event_type, u.from_version::bigint + 1 AS version, lead(u.from_version) OVER (PARTITION BY u.event_type ORDER BY u.from_version) AS next
		FROM inbox.upcasters u) g
	WHERE g.version < g.next;
END;
COMMENT ON FUNCTION inbox.check() IS
$$Reports problems: partitions that are missing, not listed, altered, unlogged or of another owner; write grants, anything granted to PUBLIC, roles with more rights than CREATE EXTENSION accepts; windows that were not chosen or are short for what the source delivers; maintenance that does not run; events that were put aside; upcasters that are gone, or leave a gap. No row = nothing found.
severity: error, or warning if no guarantee is broken. object: what has the problem. problem: the problem. No errors. Locks: those of reading. Cost: reads catalogs, and as inbox.stats.$$;

---------------------------------------------------------------- owner and rights

DO LANGUAGE plpgsql $owner$
DECLARE
	statement text;
BEGIN
	FOR statement IN
		SELECT pg_catalog.format('ALTER %s %s OWNER TO inbox_owner',
			CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::pg_catalog.regclass)
		FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'inbox'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v', 'S')
		UNION ALL
		SELECT pg_catalog.format('ALTER ROUTINE %s OWNER TO inbox_owner', p.oid::pg_catalog.regprocedure)
		FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'inbox'::pg_catalog.regnamespace
	LOOP
		EXECUTE statement;
	END LOOP;
END
$owner$;
ALTER SCHEMA inbox OWNER TO inbox_owner;

REVOKE ALL ON SCHEMA inbox FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA inbox FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA inbox FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA inbox FROM PUBLIC;

GRANT USAGE ON SCHEMA inbox TO inbox_consumer, inbox_operator, inbox_readonly;

GRANT EXECUTE ON FUNCTION inbox.receive, inbox.receive_batch, inbox.finish, inbox.failed TO inbox_consumer;
GRANT EXECUTE ON FUNCTION inbox.upcast, inbox.upcast_steps TO inbox_consumer, inbox_operator;
GRANT EXECUTE ON FUNCTION inbox.forget, inbox.set_window, inbox.maintain, inbox.replay, inbox.add_upcaster, inbox.store_upcaster,
	inbox.drop_upcaster, inbox.check TO inbox_operator;
GRANT EXECUTE ON FUNCTION inbox.consumer_stats, inbox.event_time, inbox.prometheus TO inbox_operator, inbox_readonly;
GRANT SELECT ON inbox.log, inbox.stats, inbox.consumers, inbox.partitions, inbox.failures, inbox.upcasters TO inbox_operator, inbox_readonly;
