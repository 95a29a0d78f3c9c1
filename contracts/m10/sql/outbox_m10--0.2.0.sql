/* outbox_m10 0.2.0: the complete install script.
 *
 * What it guarantees: the m10 interface is a mapping of names onto the core. The
 * events are the messages of queue m10, their state is in outbox.pending and
 * outbox.attempts; the only table here gives each message the number by which this
 * interface knows it, once and for ever. Every object lives in schema m10_recovery,
 * belongs to the role m10_recovery_owner (which cannot log in, is no superuser, and is
 * a member of the core's roles that may do what the functions here do), carries a
 * COMMENT and gives PUBLIC nothing.
 */
\echo Use "CREATE EXTENSION outbox_m10" to load this file. \quit

-- The table is of the kind and where the core's tables are.
SET LOCAL default_table_access_method = 'heap';
SET LOCAL default_tablespace = '';

---------------------------------------------------------------- the owner

DO LANGUAGE plpgsql $roles$
DECLARE
	existing record;
BEGIN
	LOOP
		SELECT rolcanlogin, rolsuper, rolcreaterole, rolbypassrls INTO existing
		FROM pg_catalog.pg_roles WHERE rolname = 'm10_recovery_owner';
		EXIT WHEN FOUND;
		BEGIN
			CREATE ROLE m10_recovery_owner NOLOGIN;
			COMMENT ON ROLE m10_recovery_owner IS 'owns all objects of the extension outbox_m10';
		EXCEPTION WHEN unique_violation OR duplicate_object THEN
			NULL;	-- made in another database meanwhile: look at it
		END;
	END LOOP;
	IF existing.rolcanlogin OR existing.rolsuper OR existing.rolcreaterole OR existing.rolbypassrls THEN
		RAISE EXCEPTION 'role "m10_recovery_owner" exists and has more rights than the extension may build on'
			USING ERRCODE = 'invalid_role_specification',
				DETAIL = 'It can log in, is a superuser, or has CREATEROLE or BYPASSRLS.',
				HINT = 'Use ALTER ROLE m10_recovery_owner NOLOGIN NOSUPERUSER NOCREATEROLE NOBYPASSRLS, or rename that role.';
	END IF;
END
$roles$;

-- Memberships rather than grants on the core's objects: those would outlive this
-- extension there, and a dump made after the role was dropped would still name it.
DO LANGUAGE plpgsql $grant$
BEGIN
	GRANT outbox_ingest, outbox_executor, outbox_readonly TO m10_recovery_owner;
EXCEPTION WHEN unique_violation THEN	-- granted in another database meanwhile
	GRANT outbox_ingest, outbox_executor, outbox_readonly TO m10_recovery_owner;
END
$grant$;

CREATE SCHEMA m10_recovery;
COMMENT ON SCHEMA m10_recovery IS 'the m10 interface over outbox: events are the messages of queue m10, known by bigint ids';

---------------------------------------------------------------- the queue

-- It outlives this extension, because its messages do; made again, the extension takes
-- it over with the settings that the interface promises.
DO LANGUAGE plpgsql $queue$
BEGIN
	IF EXISTS (SELECT FROM outbox.queues q WHERE q.queue = 'm10') THEN
		PERFORM outbox.alter_queue('m10', max_attempts => NULL, lease => interval '5 minutes',
			repair_delay => interval '0', ordering => 'none', backoff_jitter => 0, payload_kind => 'any');
	ELSE
		PERFORM outbox.create_queue('m10', max_attempts => NULL, lease => interval '5 minutes',
			repair_delay => interval '0', ordering => 'none');
	END IF;
END
$queue$;

---------------------------------------------------------------- ids

CREATE TABLE m10_recovery.event_ids (
	id bigint GENERATED ALWAYS AS IDENTITY,
	outbox_id uuid NOT NULL,
	CONSTRAINT event_ids_pkey PRIMARY KEY (id),
	CONSTRAINT event_ids_outbox_id_key UNIQUE (outbox_id)
);
COMMENT ON TABLE m10_recovery.event_ids IS 'The id by which this interface knows a message: given once, never changed, never taken back.';
COMMENT ON COLUMN m10_recovery.event_ids.id IS 'the event''s id; rising, with gaps';
COMMENT ON COLUMN m10_recovery.event_ids.outbox_id IS 'the message';
COMMENT ON SEQUENCE m10_recovery.event_ids_id_seq IS 'the ids';
COMMENT ON CONSTRAINT event_ids_pkey ON m10_recovery.event_ids IS 'an id stands for one message';
COMMENT ON INDEX m10_recovery.event_ids_pkey IS 'an id stands for one message';
COMMENT ON CONSTRAINT event_ids_outbox_id_key ON m10_recovery.event_ids IS 'a message has one id';
COMMENT ON INDEX m10_recovery.event_ids_outbox_id_key IS 'a message has one id';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON m10_recovery.event_ids
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE m10_recovery.event_ids ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON m10_recovery.event_ids IS 'an id stays as it was given';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON m10_recovery.event_ids
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE m10_recovery.event_ids ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON m10_recovery.event_ids IS 'ids are never forgotten';

SELECT pg_catalog.pg_extension_config_dump('m10_recovery.event_ids', '');
SELECT pg_catalog.pg_extension_config_dump('m10_recovery.event_ids_id_seq', '');

---------------------------------------------------------------- producer

CREATE FUNCTION m10_recovery.publish_outbox(p_aggregate_type text, p_aggregate_id text, p_event_type text, p_payload jsonb)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
	missing text := CASE
		WHEN p_aggregate_type IS NULL THEN 'p_aggregate_type'
		WHEN p_aggregate_id IS NULL THEN 'p_aggregate_id'
		WHEN p_event_type IS NULL THEN 'p_event_type'
		WHEN p_payload IS NULL THEN 'p_payload' END;
	given bigint;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	INSERT INTO m10_recovery.event_ids AS e (outbox_id)
	SELECT q.outbox_id
	FROM outbox.enqueue(p_event_type, p_payload, 'm10', aggregate_type => p_aggregate_type, aggregate_id => p_aggregate_id) q
	RETURNING e.id INTO given;
	RETURN given;
END
$function$;
COMMENT ON FUNCTION m10_recovery.publish_outbox(text, text, text, jsonb) IS
$$Publishes one event in the caller's transaction and returns its id: outbox.enqueue into queue m10.
p_aggregate_type, p_aggregate_id: the thing it happened to. p_event_type: what happened, not empty. p_payload: any JSON. There is no idempotency key: each call is a new event.
Errors: 22004 a NULL argument; 22023 an empty p_event_type, or what the queue's validator says; P7004 the queue is gone; 25006 read-only transaction.
Locks: never waits. Cost: as outbox.enqueue, and a row with two index entries.$$;

---------------------------------------------------------------- processor

-- enable_seqscan: what is looked up here are single rows, of tables whose statistics
-- are always wrong.
CREATE FUNCTION m10_recovery.claim_outbox_events(p_processor_id text, p_batch_size integer DEFAULT 10)
RETURNS TABLE (id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, retry_count integer)
LANGUAGE plpgsql VOLATILE ROWS 10 SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
	missing text := CASE
		WHEN p_processor_id IS NULL THEN 'p_processor_id'
		WHEN p_batch_size IS NULL THEN 'p_batch_size' END;
	claimed record;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	FOR claimed IN
		SELECT c.outbox_id, c.aggregate_type, c.aggregate_id, c.event_type, c.payload
		FROM outbox.claim(p_processor_id, p_batch_size, queues => '{m10}') c
	LOOP
		-- A message that did not come through publish_outbox gets its id here. No
		-- other session can do so: the lease is ours.
		LOOP
			SELECT e.id INTO id FROM m10_recovery.event_ids e WHERE e.outbox_id = claimed.outbox_id;
			EXIT WHEN FOUND;
			INSERT INTO m10_recovery.event_ids (outbox_id) VALUES (claimed.outbox_id) ON CONFLICT DO NOTHING;
		END LOOP;
		aggregate_type := claimed.aggregate_type;
		aggregate_id := claimed.aggregate_id;
		event_type := claimed.event_type;
		payload := claimed.payload;
		-- In a statement of its own, after the claim: what it took over has been committed.
		retry_count := (
			SELECT count(*) FROM outbox.attempts a
			WHERE a.outbox_id = claimed.outbox_id AND a.state = 'RETRYABLE');
		RETURN NEXT;
	END LOOP;
END
$function$;
COMMENT ON FUNCTION m10_recovery.claim_outbox_events(text, integer) IS
$$Claims at most p_batch_size events whose process_after has passed, oldest first, for as long as queue m10 says (5 minutes): outbox.claim. An event whose claim has expired can be claimed by any processor: the lost attempt is recorded (ZOMBIE_REQUEUE) and the event is claimed again.
p_processor_id: who claims, 1 to 512 bytes; a name for each process that claims, because complete_outbox_event knows the claim by it. p_batch_size: at least 1. retry_count: failures reported so far; lost claims do not count.
Errors: 22004 a NULL argument; 22023 an empty p_processor_id, a p_batch_size below 1; P7004 the queue is gone. Above READ COMMITTED retry_count is what the transaction's snapshot sees, and 40001 is possible.
Locks: as outbox.claim: the rows that it claims; never waits. Cost: as outbox.claim, and two look-ups an event, one of them reading its attempts.$$;

CREATE FUNCTION m10_recovery.complete_outbox_event(p_event_id bigint, p_processor_id text, p_success boolean, p_error text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $function$
DECLARE
	missing text := CASE
		WHEN p_event_id IS NULL THEN 'p_event_id'
		WHEN p_processor_id IS NULL THEN 'p_processor_id'
		WHEN p_success IS NULL THEN 'p_success' END;
	event record;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	-- The token of the lease that this processor holds; if it holds none, one by which
	-- the core can tell how it was lost: of its last attempt, of its present holder, none.
	-- What is read here may be past at the next statement: outbox.complete compares token,
	-- worker and expiry with the row as it is then, and refuses if they are others. A token
	-- that still holds was there when the ledger was counted, and only its holder adds to that.
	SELECT e.outbox_id,
		coalesce(
			CASE WHEN p.claimed_by = p_processor_id THEN p.lease_token END,
			(SELECT a.lease_token FROM outbox.attempts a
			WHERE a.outbox_id = e.outbox_id AND a.worker_id = p_processor_id
			ORDER BY a.attempt_no DESC LIMIT 1),
			p.lease_token,
			'00000000-0000-0000-0000-000000000000') AS lease_token,
		CASE WHEN NOT p_success THEN (
			SELECT count(*) FROM outbox.attempts a
			WHERE a.outbox_id = e.outbox_id AND a.state = 'RETRYABLE') END AS failures
	INTO event
	FROM m10_recovery.event_ids e LEFT JOIN outbox.pending p ON p.outbox_id = e.outbox_id
	WHERE e.id = p_event_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'LEASE_LOST: processor "%" does not hold event %', p_processor_id, p_event_id
			USING ERRCODE = 'P7002', DETAIL = 'There is no event with this id.';
	END IF;
	PERFORM outbox.complete(event.outbox_id, event.lease_token, p_processor_id,
		CASE WHEN p_success THEN 'DISPATCHED' ELSE 'RETRYABLE' END,
		error_message => p_error,
		retry_delay => CASE WHEN NOT p_success THEN make_interval(secs => 2 ^ least(event.failures, 10)) END);
END
$function$;
COMMENT ON FUNCTION m10_recovery.complete_outbox_event(bigint, text, boolean, text) IS
$$Reports one try: outbox.complete under the lease that p_processor_id holds. p_success: the event is processed (DISPATCHED). Otherwise (RETRYABLE) it may be claimed again from now + 2^least(retry_count, 10) seconds on, retry_count as it was before this failure: 1 s, 2 s and so on to 1024 s.
p_event_id, p_processor_id: as claimed. p_error: kept as error_message.
Errors: P7002 this processor does not hold the event, or no longer (DETAIL: how so; there is no event with this id); P7001 the ledger has a terminal attempt already; 22004 a NULL argument; 22023 an empty p_processor_id. Above READ COMMITTED it goes by what the transaction's snapshot sees, and 40001 is possible.
Locks: the pending row, until the end of the transaction, and waits for a transaction that holds it. Cost: as outbox.complete, and three look-ups, reading the event's attempts.$$;

---------------------------------------------------------------- view

-- No security_barrier: it would read all of history in a join by id, and who may read
-- this view may read outbox.messages.
CREATE VIEW m10_recovery.outbox AS
	SELECT e.id, m.aggregate_type, m.aggregate_id, m.event_type, m.payload, m.created_at,
		(SELECT a.completed_at FROM outbox.attempts a
		WHERE a.outbox_id = m.outbox_id AND a.state = 'DISPATCHED') AS processed_at,
		(SELECT pg_catalog.count(*) FROM outbox.attempts a
		WHERE a.outbox_id = m.outbox_id AND a.state = 'RETRYABLE')::integer AS retry_count,
		p.next_attempt_at AS process_after, p.claimed_at, p.claimed_by,
		NULL::timestamptz AS next_retry_at
	FROM outbox.messages m
	LEFT JOIN m10_recovery.event_ids e ON e.outbox_id = m.outbox_id
	LEFT JOIN outbox.pending p ON p.outbox_id = m.outbox_id AND p.queue = 'm10' AND NOT p.held_back
	WHERE m.queue = 'm10';
COMMENT ON VIEW m10_recovery.outbox IS
'The events of queue m10, past ones too. A condition on id costs one look-up; one on claimed_at or claimed_by reads what is claimed; one on process_after all that is pending, and messages as the planner sees fit. Anything else, counts and processed_at IS NULL among them, reads every message there ever was. For roles that may read outbox.messages too: a function of the reader''s own in a condition may be shown messages of other queues.';
COMMENT ON COLUMN m10_recovery.outbox.id IS 'the event''s id; NULL for a message that came by another way than publish_outbox and was never claimed';
COMMENT ON COLUMN m10_recovery.outbox.aggregate_type IS 'kind of the thing it happened to';
COMMENT ON COLUMN m10_recovery.outbox.aggregate_id IS 'the thing it happened to';
COMMENT ON COLUMN m10_recovery.outbox.event_type IS 'what happened';
COMMENT ON COLUMN m10_recovery.outbox.payload IS 'the event';
COMMENT ON COLUMN m10_recovery.outbox.created_at IS 'wall clock of its publication';
COMMENT ON COLUMN m10_recovery.outbox.processed_at IS 'when success was reported; NULL = never';
COMMENT ON COLUMN m10_recovery.outbox.retry_count IS 'failures reported; lost claims do not count';
COMMENT ON COLUMN m10_recovery.outbox.process_after IS 'not claimed before; NULL = ended';
COMMENT ON COLUMN m10_recovery.outbox.claimed_at IS 'since when it is claimed; NULL = it is not';
COMMENT ON COLUMN m10_recovery.outbox.claimed_by IS 'the processor, also after the claim expired and until another claim';
COMMENT ON COLUMN m10_recovery.outbox.next_retry_at IS 'deprecated, always NULL: process_after alone decides';

---------------------------------------------------------------- owner and rights

ALTER TABLE m10_recovery.event_ids OWNER TO m10_recovery_owner;
ALTER VIEW m10_recovery.outbox OWNER TO m10_recovery_owner;
ALTER FUNCTION m10_recovery.publish_outbox(text, text, text, jsonb) OWNER TO m10_recovery_owner;
ALTER FUNCTION m10_recovery.claim_outbox_events(text, integer) OWNER TO m10_recovery_owner;
ALTER FUNCTION m10_recovery.complete_outbox_event(bigint, text, boolean, text) OWNER TO m10_recovery_owner;
ALTER SCHEMA m10_recovery OWNER TO m10_recovery_owner;

REVOKE ALL ON SCHEMA m10_recovery FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA m10_recovery FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA m10_recovery FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA m10_recovery FROM PUBLIC;

GRANT USAGE ON SCHEMA m10_recovery TO outbox_ingest, outbox_executor, outbox_operator, outbox_readonly, outbox_auditor;
GRANT EXECUTE ON FUNCTION m10_recovery.publish_outbox(text, text, text, jsonb) TO outbox_ingest;
GRANT EXECUTE ON FUNCTION
	m10_recovery.claim_outbox_events(text, integer),
	m10_recovery.complete_outbox_event(bigint, text, boolean, text)
TO outbox_executor;
GRANT SELECT ON m10_recovery.outbox TO outbox_readonly, outbox_auditor;
-- The operator's functions take an outbox_id.
GRANT SELECT ON m10_recovery.event_ids TO outbox_operator, outbox_readonly, outbox_auditor;
