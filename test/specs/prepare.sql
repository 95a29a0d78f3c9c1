-- What the specs share. test/run loads it into their database before the first one.
--
-- CALL fresh() is the beginning of each permutation: the extension as CREATE EXTENSION makes it or, undated, as a
-- restore does, without dated partitions. It is created only if another spec has left something else, and its tables are
-- emptied otherwise: to create it, and to have each session read the catalogue again, takes ten times as long as
-- what a permutation does. Hence in this database rows of the ledger can be deleted. Partitions that maintain() made stay.
SET client_min_messages = warning;

CREATE EXTENSION pgrowlocks;
CREATE TABLE made (extension oid);

CREATE PROCEDURE fresh(undated boolean = false) LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	name regclass;
BEGIN
	IF NOT EXISTS (SELECT FROM pg_extension JOIN made ON oid = extension)
		OR undated = (SELECT count(*) > 1 FROM pg_inherits WHERE inhparent = to_regclass('outbox.messages'))
	THEN
		DROP EXTENSION IF EXISTS outbox CASCADE;
		IF undated THEN
			SET LOCAL xmloption = content; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
		END IF;
		CREATE EXTENSION outbox;
		CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
		DELETE FROM made;
		INSERT INTO made SELECT oid FROM pg_extension WHERE extname = 'outbox';
	END IF;
	PERFORM outbox.alter_queue(queue, dead_letter_queue => '') FROM outbox.queues WHERE dead_letter_queue IS NOT NULL;
	PERFORM outbox.cancel(outbox_id, 'no longer', force => true) FROM outbox.pending;
	FOR name IN
		SELECT oid FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
			AND relname <> 'queues'
	LOOP
		EXECUTE format('DELETE FROM %s', name);
	END LOOP;
	PERFORM outbox.drop_queue(queue) FROM outbox.queues;
	INSERT INTO outbox.queues (queue) VALUES ('default');
END
$$;

-- The command's one value, or the SQLSTATE and the condition its message begins with.
CREATE FUNCTION tried(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE command INTO answer;
	RETURN coalesce(answer, 'nothing');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || coalesce(' ' || substring(SQLERRM FROM '^([A-Z_]+):'), '');
END
$$;

-- Keys of a fifo queue f: one message of key p; what is pending, and marked; what maintain() leaves;
-- what each claim gives, one after the other, until there is none.
CREATE FUNCTION put(name text) RETURNS bigint LANGUAGE sql AS $$
	SELECT sequence_id FROM outbox.enqueue(name, '1', 'f', partition_key => 'p')
$$;
CREATE FUNCTION id(name text) RETURNS uuid LANGUAGE sql AS $$ SELECT outbox_id FROM outbox.messages WHERE event_type = name AND replay_of IS NULL $$;
CREATE FUNCTION keys(OUT pending text, OUT marks text) LANGUAGE sql AS $$
	SELECT coalesce(string_agg(event_type || CASE WHEN held_back THEN ' behind' ELSE ' head' END || coalesce(' of ' || claimed_by, ''), ', ' ORDER BY p.sequence_id), 'nothing'),
		(SELECT coalesce(string_agg(kind || ' ' || sequence_id, ', ' ORDER BY kind, sequence_id), 'none') FROM outbox.key_marks)
	FROM outbox.pending p JOIN outbox.messages USING (outbox_id)
$$;
CREATE FUNCTION settled(OUT pending text, OUT marks text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM outbox.maintain();
	SELECT * INTO pending, marks FROM keys();
END
$$;
CREATE FUNCTION drained(OUT delivered text, OUT pending text) LANGUAGE plpgsql AS $$
DECLARE
	one record;
BEGIN
	LOOP
		SELECT outbox_id, lease_token, event_type INTO one FROM outbox.claim('d', 1, queues => ARRAY['f']);
		EXIT WHEN NOT FOUND;
		delivered := concat_ws(' ', delivered, one.event_type);
		PERFORM outbox.complete(one.outbox_id, one.lease_token, 'd', 'DISPATCHED');
	END LOOP;
	SELECT k.pending INTO pending FROM keys() k;
END
$$;
