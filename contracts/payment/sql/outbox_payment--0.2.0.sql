/* outbox_payment 0.2.0: the complete install script.
 *
 * What it guarantees: the payment interface is a mapping of names onto the queue
 * `payment` of the extension outbox. It has no table and no state of its own; what
 * it says is what the core says. Functions belong to symphony_control, which cannot
 * log in and may only read the relations; whatever a superuser's UPDATE, INSERT or
 * ALTER EXTENSION would run belongs to outbox_owner, which has no members.
 * Every object carries a COMMENT and gives PUBLIC nothing.
 *
 * The extension is relocatable, so no body names its own schema: what it finds there
 * it finds by OID. Objects are made in the first schema of search_path; everything
 * else is named with its schema or resolved at once with the exact types of
 * pg_catalog, which no other schema can precede. (For an enum it has none: whatever
 * compares one names the operator's schema.)
 */
\echo Use "CREATE EXTENSION outbox_payment" to load this file. \quit

-- The index is where the core's tables are.
SET LOCAL default_tablespace = '';

---------------------------------------------------------------- roles

DO LANGUAGE plpgsql $roles$
DECLARE
	wanted record;
	existing record;
BEGIN
	FOR wanted IN
		SELECT * FROM (VALUES
			('symphony_control', 'outbox_payment: owns the functions, reads the views'),
			('symphony_ingest', 'outbox_payment: may enqueue'),
			('symphony_executor', 'outbox_payment: may claim, complete and repair'),
			('symphony_readonly', 'outbox_payment: reads the views'),
			('symphony_auditor', 'outbox_payment: reads the views')) AS v(name, meaning)
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

-- Memberships, not grants on the core's functions: a grant made by this script would
-- stay in the core's initial rights after this extension and the role are gone.
-- outbox_operator is there for take_number alone; outbox_lookup because the reader of a
-- view calls its functions.
DO LANGUAGE plpgsql $grant$
BEGIN
	GRANT outbox_ingest, outbox_executor, outbox_readonly, outbox_operator TO symphony_control;
	GRANT outbox_lookup TO symphony_readonly, symphony_auditor;
EXCEPTION WHEN unique_violation THEN	-- granted in another database meanwhile
	GRANT outbox_ingest, outbox_executor, outbox_readonly, outbox_operator TO symphony_control;
	GRANT outbox_lookup TO symphony_readonly, symphony_auditor;
END
$grant$;

---------------------------------------------------------------- type

CREATE DOMAIN outbox_attempt_state AS outbox.attempt_state;
COMMENT ON DOMAIN outbox_attempt_state IS
'How one finished try ended: DISPATCHED, FAILED (both terminal), RETRYABLE, ZOMBIE_REQUEUE. The core''s type under the name that payment clients use, for arguments; text is cast to it. To compare a value of it, cast it to text.';

---------------------------------------------------------------- what a payment must be

CREATE FUNCTION payment_outbox_validator(payload jsonb, headers jsonb, routing_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT CASE
		WHEN jsonb_typeof(payload) <> 'object'::text
			THEN 'payload must be an object, not '::text || jsonb_typeof(payload)
		WHEN jsonb_typeof(payload -> 'amount'::text) IS DISTINCT FROM 'number'::text
			THEN 'amount must be a number, not '::text || coalesce(jsonb_typeof(payload -> 'amount'::text), 'absent'::text)
		WHEN (payload -> 'amount'::text)::numeric <= 0::numeric
			THEN 'amount must be greater than 0, not '::text || "left"(payload ->> 'amount'::text, 40)
		WHEN jsonb_typeof(payload -> 'currency'::text) IS DISTINCT FROM 'string'::text
			THEN 'currency must be a string, not '::text || coalesce(jsonb_typeof(payload -> 'currency'::text), 'absent'::text)
		WHEN (payload ->> 'currency'::text) COLLATE "C" !~ '^[A-Z]{3}$'::text
			THEN 'currency must be three capital letters, not "'::text || "left"(payload ->> 'currency'::text, 40) || '"'::text
		-- ISO 4217, List One (current currency, fund and precious metal codes), as
		-- published on 2026-09-17 by its maintenance agency, SIX: all 178 codes.
		WHEN payload ->> 'currency'::text <> ALL ('{
			AED,AFN,ALL,AMD,AOA,ARS,AUD,AWG,AZN,BAM,BBD,BDT,BHD,BIF,BMD,BND,BOB,BOV,BRL,BSD,BTN,BWP,BYN,BZD,
			CAD,CDF,CHE,CHF,CHW,CLF,CLP,CNY,COP,COU,CRC,CUP,CVE,CZK,DJF,DKK,DOP,DZD,EGP,ERN,ETB,EUR,FJD,FKP,
			GBP,GEL,GHS,GIP,GMD,GNF,GTQ,GYD,HKD,HNL,HTG,HUF,IDR,ILS,INR,IQD,IRR,ISK,JMD,JOD,JPY,KES,KGS,KHR,
			KMF,KPW,KRW,KWD,KYD,KZT,LAK,LBP,LKR,LRD,LSL,LYD,MAD,MDL,MGA,MKD,MMK,MNT,MOP,MRU,MUR,MVR,MWK,MXN,
			MXV,MYR,MZN,NAD,NGN,NIO,NOK,NPR,NZD,OMR,PAB,PEN,PGK,PHP,PKR,PLN,PYG,QAR,RON,RSD,RUB,RWF,SAR,SBD,
			SCR,SDG,SEK,SGD,SHP,SLE,SOS,SRD,SSP,STN,SVC,SYP,SZL,THB,TJS,TMT,TND,TOP,TRY,TTD,TWD,TZS,UAH,UGX,
			USD,USN,UYI,UYU,UYW,UZS,VED,VES,VND,VUV,WST,XAD,XAF,XAG,XAU,XBA,XBB,XBC,XBD,XCD,XCG,XDR,XOF,XPD,
			XPF,XPT,XSU,XTS,XUA,XXX,YER,ZAR,ZMW,ZWG}'::text[])
			THEN 'currency "'::text || (payload ->> 'currency'::text) || '" is not in ISO 4217'::text
		WHEN jsonb_typeof(payload -> 'destination'::text) IS NULL OR jsonb_typeof(payload -> 'destination'::text) <> ALL ('{string,object}'::text[])
			THEN 'destination must be a string or an object, not '::text || coalesce(jsonb_typeof(payload -> 'destination'::text), 'absent'::text)
		WHEN payload -> 'destination'::text = '{}'::jsonb OR payload ->> 'destination'::text ~ '^\s*$'::text
			THEN 'destination must not be empty'::text
	END;
END;
COMMENT ON FUNCTION payment_outbox_validator(jsonb, jsonb, text) IS
$$Checks a payment. Every enqueue into the queue payment calls it; if it returns a text, the enqueue is refused (22023) with this text as DETAIL. NULL accepts the payment.
payload: an object with amount, a number above 0; currency, a code of ISO 4217 (List One as published on 2026-09-17); destination, a string that is not blank or an object that is not empty. headers: not looked at. routing_key: the rail_type, for stricter rules: a function of your own that calls this one, set with outbox.alter_queue('payment', validator => ...).
No errors, no locks; cost: some microseconds, reads nothing.$$;

---------------------------------------------------------------- the queue

-- Before the queue names it: a validator is run only for the owner that it had then.
ALTER FUNCTION payment_outbox_validator(jsonb, jsonb, text) OWNER TO symphony_control;

-- The queue stays when this extension is dropped, and a restored dump overwrites its settings
-- with those it had. One that is there keeps its settings, and a validator that works.
DO LANGUAGE plpgsql $queue$
DECLARE
	validator CONSTANT text := pg_catalog.format('%I.payment_outbox_validator', pg_catalog.current_schema());
	existing record;
BEGIN
	SELECT q.ordering, q.validator, q.validator_owner INTO existing FROM outbox.queues q WHERE q.queue = 'payment';
	IF NOT FOUND THEN
		PERFORM outbox.create_queue('payment', max_attempts => 20, backoff_base => '5 seconds', backoff_cap => '5 seconds',
			repair_delay => '1 second', ordering => 'numbered', validator => validator, backoff_jitter => 0, payload_kind => 'any');
	ELSIF existing.ordering <> 'numbered' THEN
		RAISE EXCEPTION 'queue "payment" exists and does not number its messages'
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'Use outbox.alter_queue(''payment'', ordering => ''numbered'') if it is meant to be this extension''s, or outbox.drop_queue.';
	ELSIF existing.validator IS NULL OR pg_catalog.to_regproc(existing.validator) IS NULL
		OR existing.validator = validator AND existing.validator_owner <> 'symphony_control' THEN
		PERFORM outbox.alter_queue('payment', validator => validator);
	END IF;
END
$queue$;

CREATE FUNCTION payment_outbox_follow_schema() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	own CONSTANT text := '.payment_outbox_validator';
	wanted text;
	existing text;
BEGIN
	SELECT quote_ident(n.nspname) INTO wanted
	FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox_payment';
	-- Another validator, or none, is a decision of the operator.
	SELECT left(q.validator, -length(own)) INTO existing
	FROM outbox.queues q WHERE q.queue = 'payment' AND right(q.validator, length(own)) = own;
	IF existing <> wanted AND NOT EXISTS (
		SELECT FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
		WHERE quote_ident(n.nspname) || '.' || f.proname = existing || own)
	THEN
		-- By hand: alter_queue asks for a member of the validator's owner. Of whom it is stays as it was.
		UPDATE outbox.queues SET validator = wanted || own WHERE queue = 'payment';
	END IF;
END
$$;
COMMENT ON FUNCTION payment_outbox_follow_schema() IS
'Event trigger function: outbox.queues names the validator with its schema, and this keeps that name right when the extension moves to another schema or the schema is renamed.';
CREATE EVENT TRIGGER outbox_payment_follow_schema ON ddl_command_end WHEN TAG IN ('ALTER EXTENSION', 'ALTER SCHEMA')
	EXECUTE FUNCTION payment_outbox_follow_schema();
COMMENT ON EVENT TRIGGER outbox_payment_follow_schema IS 'keeps the name of the payment validator right when its schema changes';

---------------------------------------------------------------- producer

CREATE FUNCTION enqueue_payment_outbox(p_instruction_id text, p_participant_id text, p_idempotency_key text, p_rail_type text, p_payload jsonb)
RETURNS TABLE (outbox_id uuid, sequence_id bigint, created_at timestamptz)
LANGUAGE plpgsql VOLATILE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing CONSTANT text := CASE
		WHEN p_instruction_id IS NULL THEN 'p_instruction_id'
		WHEN p_participant_id IS NULL THEN 'p_participant_id'
		WHEN p_idempotency_key IS NULL THEN 'p_idempotency_key'
		WHEN p_rail_type IS NULL THEN 'p_rail_type'
		WHEN p_payload IS NULL THEN 'p_payload'
	END;
	id uuid;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	SELECT e.outbox_id, e.sequence_id INTO id, sequence_id
	FROM outbox.enqueue('payment', p_payload, queue => 'payment', aggregate_id => p_instruction_id, partition_key => p_participant_id,
		idempotency_key => p_idempotency_key, routing_key => p_rail_type) e;
	outbox_id := id;
	SELECT p.created_at INTO created_at FROM outbox.pending p WHERE p.outbox_id = id;
	IF NOT FOUND THEN
		SELECT m.created_at INTO created_at FROM outbox.messages m WHERE m.outbox_id = id;
	END IF;
	IF NOT FOUND THEN
		-- Committed after this transaction's snapshot: the time that the id carries, 48 bits of
		-- milliseconds and, behind the version, 12 of their fraction.
		created_at := to_timestamp((('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint * 1000
			+ (('x' || substr(id::text, 16, 3))::bit(12)::integer * 1000 + 4095) / 4096) / 1000000.0::double precision);
	END IF;
	RETURN NEXT;
END
$$;
COMMENT ON FUNCTION enqueue_payment_outbox(text, text, text, text, jsonb) IS
$$Stores one payment instruction in the caller's transaction and returns its id, its number within the participant and when it was stored; the same (p_instruction_id, p_idempotency_key) again, from any number of sessions, returns the first one's and stores nothing.
p_instruction_id, p_participant_id, p_idempotency_key, p_rail_type: kept as aggregate_id, partition_key, idempotency_key and routing_key. p_payload: what payment_outbox_validator accepts.
Errors: 22004 NULL; 22023 a payload that is not valid (DETAIL: why); those of outbox.enqueue. Locks: waits for an open transaction with the same instruction and key, or of the same participant. Cost: as outbox.enqueue, and one look-up.$$;

CREATE FUNCTION bump_participant_outbox_seq(p_participant_id text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF p_participant_id IS NULL THEN
		RAISE EXCEPTION 'p_participant_id must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	RETURN outbox.take_number('payment', p_participant_id);
END
$$;
COMMENT ON FUNCTION bump_participant_outbox_seq(text) IS
$$Uses up the participant's next number: no payment will bear it, the next one bears the number after it.
Errors: 22004 NULL; those of outbox.take_number. Locks: waits for an open transaction of the same participant, and makes the next one wait. Cost: two rows.$$;

---------------------------------------------------------------- worker

CREATE FUNCTION claim_outbox_batch(p_batch_size integer, p_worker_id text, p_lease_seconds integer)
RETURNS TABLE (outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text,
	payload jsonb, attempt_count integer, lease_token uuid, lease_expires_at timestamptz)
LANGUAGE plpgsql VOLATILE ROWS 10 SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing CONSTANT text := CASE
		WHEN p_batch_size IS NULL THEN 'p_batch_size'
		WHEN p_worker_id IS NULL THEN 'p_worker_id'
		WHEN p_lease_seconds IS NULL THEN 'p_lease_seconds'
	END;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	RETURN QUERY
		SELECT c.outbox_id, c.aggregate_id, c.partition_key, c.sequence_id, c.idempotency_key, c.routing_key,
			c.payload, c.attempt_count, c.lease_token, c.lease_expires_at
		FROM outbox.claim(p_worker_id, p_batch_size, make_interval(secs => p_lease_seconds), ARRAY['payment']) c;
END
$$;
COMMENT ON FUNCTION claim_outbox_batch(integer, text, integer) IS
$$Leases at most p_batch_size due payments to p_worker_id for p_lease_seconds from now, oldest due first, each under a fresh lease_token. An expired lease that it finds is recorded first: as ZOMBIE_REQUEUE, or as FAILED / LEASE_EXPIRED at the 20th attempt, which ends the payment.
Errors: 22004 NULL; 22023 a batch size or lease below 1, an empty worker. Locks: the rows it leases; never waits. Cost: as outbox.claim.$$;

CREATE FUNCTION complete_outbox_attempt(p_outbox_id uuid, p_lease_token uuid, p_worker_id text, p_state outbox_attempt_state,
	p_rail_reference text DEFAULT NULL, p_rail_code text DEFAULT NULL, p_error_code text DEFAULT NULL, p_error_message text DEFAULT NULL,
	p_latency_ms integer DEFAULT NULL, p_retry_delay_seconds integer DEFAULT NULL)
RETURNS TABLE (attempt_no integer)
LANGUAGE plpgsql VOLATILE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing CONSTANT text := CASE
		WHEN p_outbox_id IS NULL THEN 'p_outbox_id'
		WHEN p_lease_token IS NULL THEN 'p_lease_token'
		WHEN p_worker_id IS NULL THEN 'p_worker_id'
		WHEN p_state IS NULL THEN 'p_state'
	END;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	RETURN QUERY
		SELECT c.attempt_no
		FROM outbox.complete(p_outbox_id, p_lease_token, p_worker_id, p_state, p_rail_reference, p_rail_code, p_error_code, p_error_message,
			p_latency_ms, CASE WHEN p_state::text = 'RETRYABLE' THEN make_interval(secs => p_retry_delay_seconds) END) c;
END
$$;
COMMENT ON FUNCTION complete_outbox_attempt(uuid, uuid, text, outbox_attempt_state, text, text, text, text, integer, integer) IS
$$Reports one try and returns its number: DISPATCHED and FAILED end the payment, RETRYABLE makes it due after p_retry_delay_seconds (NULL: the queue's delay, 5 s). At the ceiling, the 20th attempt, RETRYABLE is recorded as FAILED, with error_code RETRIES_EXHAUSTED unless one is given.
p_outbox_id, p_lease_token, p_worker_id: as claim_outbox_batch gave them. p_rail_reference, p_rail_code: kept as reference and response_code.
Errors: P7002 the lease is lost; P7001 already terminal; P7003 a state that completion may not record; 22004 NULL; 22023 a negative latency or delay. Locks: the pending row, until the end of the transaction. Cost: as outbox.complete.$$;

CREATE FUNCTION repair_expired_leases(p_batch_size integer, p_worker_id text)
RETURNS TABLE (outbox_id uuid, attempt_no integer)
LANGUAGE plpgsql VOLATILE ROWS 10 SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	missing CONSTANT text := CASE
		WHEN p_batch_size IS NULL THEN 'p_batch_size'
		WHEN p_worker_id IS NULL THEN 'p_worker_id'
	END;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed';
	END IF;
	RETURN QUERY
		SELECT r.outbox_id, r.attempt_no FROM outbox.repair_expired_leases(p_batch_size, p_worker_id, ARRAY['payment']) r;
END
$$;
COMMENT ON FUNCTION repair_expired_leases(integer, text) IS
$$Takes back at most p_batch_size expired leases of payments: appends ZOMBIE_REQUEUE (or FAILED / LEASE_EXPIRED at the 20th attempt, which ends the payment), frees the row and makes it due after the queue's repair_delay, 1 s. Other queues are left alone.
Errors: 22004 NULL; 22023 a batch size below 1, an empty worker. Locks: the rows it repairs; never waits. Cost: linear in the expired leases it meets.$$;

---------------------------------------------------------------- views

-- security_barrier: a reader of payments must not see other queues' messages through a
-- function of his own that is called before the queue is looked at.
-- States are shown as the core's type: a domain over an enum cannot be compared with
-- anything, and operators for it would make those of the enum ambiguous.

-- DISTINCT ON says what the planner cannot know of a partitioned table, that there is
-- one message at most: so a query that asks for no column of it does not look it up.
CREATE VIEW payment_outbox_pending WITH (security_barrier) AS
	SELECT p.outbox_id, m.aggregate_id AS instruction_id, p.partition_key AS participant_id, p.sequence_id,
		m.idempotency_key, m.routing_key AS rail_type, m.payload, p.attempt_count, p.next_attempt_at, p.created_at,
		p.claimed_by, p.lease_token, p.lease_expires_at
	FROM outbox.pending p
	LEFT JOIN LATERAL (
		SELECT DISTINCT ON (m.outbox_id) m.outbox_id, m.aggregate_id, m.idempotency_key, m.routing_key, m.payload
		FROM outbox.messages m WHERE m.outbox_id = p.outbox_id) m ON m.outbox_id = p.outbox_id
	WHERE p.queue = 'payment'::text;
COMMENT ON VIEW payment_outbox_pending IS
'Payments without a terminal outcome, and their leases. outbox_id, participant_id (and sequence_id with it), claimed_by and lease_expires_at are found by index. instruction_id, idempotency_key, rail_type and payload are looked up row by row: narrow by the others. Conditions on next_attempt_at and created_at, and count(*), read all that is pending; an order by these looks up each payment before it sorts: take the ids first, then the rows of these. Lease, schedule and attempt_count can be updated, by superusers.';
COMMENT ON COLUMN payment_outbox_pending.outbox_id IS 'the payment, a UUIDv7';
COMMENT ON COLUMN payment_outbox_pending.instruction_id IS 'the instruction: messages.aggregate_id';
COMMENT ON COLUMN payment_outbox_pending.participant_id IS 'the participant: partition_key';
COMMENT ON COLUMN payment_outbox_pending.sequence_id IS 'its number within the participant';
COMMENT ON COLUMN payment_outbox_pending.idempotency_key IS 'key under which it is stored once, within the instruction';
COMMENT ON COLUMN payment_outbox_pending.rail_type IS 'the rail: messages.routing_key';
COMMENT ON COLUMN payment_outbox_pending.payload IS 'the payment as it was enqueued';
COMMENT ON COLUMN payment_outbox_pending.attempt_count IS 'attempts in the ledger, as cached; only ever grows';
COMMENT ON COLUMN payment_outbox_pending.next_attempt_at IS 'not claimed before';
COMMENT ON COLUMN payment_outbox_pending.created_at IS 'when it was enqueued';
COMMENT ON COLUMN payment_outbox_pending.claimed_by IS 'lease: the worker; NULL = unleased';
COMMENT ON COLUMN payment_outbox_pending.lease_token IS 'lease: the token that completion must show';
COMMENT ON COLUMN payment_outbox_pending.lease_expires_at IS 'lease: until when';

-- The participant's payments in order. The core's index on (queue, partition_key) is by
-- digest, and no query says the digest.
CREATE INDEX pending_payment_participant ON outbox.pending (partition_key, sequence_id) WHERE queue = 'payment'::text;
COMMENT ON INDEX outbox.pending_payment_participant IS 'finds one participant''s payments; of the extension outbox_payment';
ALTER INDEX outbox.pending_payment_participant DEPENDS ON EXTENSION outbox_payment;

-- A view that cannot be written refuses all roles with the same error. With this trigger a
-- role without the right gets 42501.
CREATE FUNCTION payment_outbox_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RAISE EXCEPTION '% of view "%" is refused', TG_OP, TG_TABLE_NAME
		USING ERRCODE = 'feature_not_supported', HINT = 'Payments come by enqueue_payment_outbox and end by complete_outbox_attempt or outbox.cancel.';
END
$$;
COMMENT ON FUNCTION payment_outbox_refuse() IS 'Trigger function: refuses what a view does not pass on, with 0A000.';
CREATE TRIGGER refuse INSTEAD OF INSERT OR DELETE ON payment_outbox_pending
	FOR EACH ROW EXECUTE FUNCTION payment_outbox_refuse();
COMMENT ON TRIGGER refuse ON payment_outbox_pending IS 'payments come and go by the functions';

CREATE FUNCTION payment_outbox_pending_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	leased CONSTANT boolean := NEW.claimed_by IS DISTINCT FROM OLD.claimed_by;
BEGIN
	IF (NEW.outbox_id, NEW.instruction_id, NEW.participant_id, NEW.sequence_id, NEW.idempotency_key, NEW.rail_type, NEW.payload, NEW.created_at)
		IS DISTINCT FROM
		(OLD.outbox_id, OLD.instruction_id, OLD.participant_id, OLD.sequence_id, OLD.idempotency_key, OLD.rail_type, OLD.payload, OLD.created_at)
	THEN
		RAISE EXCEPTION 'only the lease, the schedule and attempt_count of payment_outbox_pending can be updated'
			USING ERRCODE = 'feature_not_supported', DETAIL = 'The rest was said by the producer and stays as it was written.';
	END IF;
	-- Only what the command changed: what a worker has done since the row was read stays.
	UPDATE outbox.pending p SET
		attempt_count = CASE WHEN NEW.attempt_count IS DISTINCT FROM OLD.attempt_count THEN NEW.attempt_count ELSE p.attempt_count END,
		next_attempt_at = CASE WHEN NEW.next_attempt_at IS DISTINCT FROM OLD.next_attempt_at THEN NEW.next_attempt_at ELSE p.next_attempt_at END,
		claimed_by = CASE WHEN leased THEN NEW.claimed_by ELSE p.claimed_by END,
		claimed_at = CASE WHEN leased THEN CASE WHEN NEW.claimed_by IS NOT NULL THEN clock_timestamp() END ELSE p.claimed_at END,
		lease_token = CASE WHEN NEW.lease_token IS DISTINCT FROM OLD.lease_token THEN NEW.lease_token ELSE p.lease_token END,
		lease_expires_at = CASE WHEN NEW.lease_expires_at IS DISTINCT FROM OLD.lease_expires_at THEN NEW.lease_expires_at ELSE p.lease_expires_at END
	WHERE p.outbox_id = OLD.outbox_id;
	RETURN CASE WHEN FOUND THEN NEW END;
END
$$;
COMMENT ON FUNCTION payment_outbox_pending_update() IS
'Trigger function: passes changes of lease, schedule and attempt_count on to outbox.pending, with claimed_at, which the view does not show; refuses others with 0A000.';
CREATE TRIGGER update_pending INSTEAD OF UPDATE ON payment_outbox_pending
	FOR EACH ROW EXECUTE FUNCTION payment_outbox_pending_update();
COMMENT ON TRIGGER update_pending ON payment_outbox_pending IS 'lets a superuser set leases and times';

CREATE VIEW payment_outbox_attempts WITH (security_barrier) AS
	-- The UUIDv8 that RFC 9562 makes of SHA-256, name space and name: outbox_id and attempt_no.
	SELECT overlay(overlay("left"(h.hex, 32) PLACING '8'::text FROM 13 FOR 1)
			PLACING translate(substr(h.hex, 17, 1), '0123456789abcdef'::text, '89ab89ab89ab89ab'::text) FROM 17 FOR 1)::uuid AS attempt_id,
		a.outbox_id, m.aggregate_id AS instruction_id, m.partition_key AS participant_id, m.sequence_id, m.idempotency_key,
		m.routing_key AS rail_type, m.payload, a.attempt_no, a.state, a.claimed_at, a.completed_at,
		a.reference AS rail_reference, a.response_code AS rail_code, a.error_code, a.error_message, a.latency_ms, a.created_at, a.worker_id
	FROM outbox.attempts a
	JOIN outbox.messages m ON m.outbox_id = a.outbox_id
	CROSS JOIN LATERAL (
		SELECT encode(sha256(uuid_send(a.outbox_id) || convert_to(a.attempt_no::text, 'SQL_ASCII'::name)), 'hex'::text) AS hex) h
	WHERE m.queue = 'payment'::text;
COMMENT ON VIEW payment_outbox_attempts IS
'The ledger of payments, append-only: one row a finished try, with the payment it belongs to. Found by outbox_id; whatever else is asked for reads the whole ledger.';
COMMENT ON COLUMN payment_outbox_attempts.attempt_id IS 'stands for (outbox_id, attempt_no): UUIDv8 of SHA-256, name space outbox_id, name attempt_no';
COMMENT ON COLUMN payment_outbox_attempts.outbox_id IS 'the payment';
COMMENT ON COLUMN payment_outbox_attempts.instruction_id IS 'its instruction: messages.aggregate_id';
COMMENT ON COLUMN payment_outbox_attempts.participant_id IS 'its participant: partition_key';
COMMENT ON COLUMN payment_outbox_attempts.sequence_id IS 'its number within the participant';
COMMENT ON COLUMN payment_outbox_attempts.idempotency_key IS 'its key';
COMMENT ON COLUMN payment_outbox_attempts.rail_type IS 'its rail: messages.routing_key';
COMMENT ON COLUMN payment_outbox_attempts.payload IS 'the payment as it was enqueued';
COMMENT ON COLUMN payment_outbox_attempts.attempt_no IS '1, 2, 3 and so on per payment';
COMMENT ON COLUMN payment_outbox_attempts.state IS 'how the try ended';
COMMENT ON COLUMN payment_outbox_attempts.claimed_at IS 'when its lease began';
COMMENT ON COLUMN payment_outbox_attempts.completed_at IS 'when the payment ended; NULL unless the state is terminal';
COMMENT ON COLUMN payment_outbox_attempts.rail_reference IS 'the rail''s reference: attempts.reference';
COMMENT ON COLUMN payment_outbox_attempts.rail_code IS 'the rail''s answer: attempts.response_code';
COMMENT ON COLUMN payment_outbox_attempts.error_code IS 'the worker''s code, or RETRIES_EXHAUSTED, LEASE_EXPIRED, CANCELLED';
COMMENT ON COLUMN payment_outbox_attempts.error_message IS 'what went wrong';
COMMENT ON COLUMN payment_outbox_attempts.latency_ms IS 'milliseconds the delivery took, as the worker measured';
COMMENT ON COLUMN payment_outbox_attempts.created_at IS 'when the row was written';
COMMENT ON COLUMN payment_outbox_attempts.worker_id IS 'who held the lease';

CREATE TRIGGER append_only INSTEAD OF UPDATE OR DELETE ON payment_outbox_attempts
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
COMMENT ON TRIGGER append_only ON payment_outbox_attempts IS 'what was tried stays as it was written';

CREATE FUNCTION payment_outbox_attempts_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	m record;
BEGIN
	SELECT * INTO m FROM outbox.messages WHERE outbox_id = NEW.outbox_id AND queue = 'payment';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no payment %', coalesce(NEW.outbox_id::text, 'NULL') USING ERRCODE = 'foreign_key_violation';
	END IF;
	IF NEW.attempt_id IS NOT NULL THEN
		RAISE EXCEPTION 'attempt_id is derived from outbox_id and attempt_no' USING ERRCODE = 'generated_always';
	END IF;
	IF (m.aggregate_id, m.partition_key, m.sequence_id, m.idempotency_key, m.routing_key, m.payload) IS DISTINCT FROM
		(coalesce(NEW.instruction_id, m.aggregate_id), coalesce(NEW.participant_id, m.partition_key), coalesce(NEW.sequence_id, m.sequence_id),
			coalesce(NEW.idempotency_key, m.idempotency_key), coalesce(NEW.rail_type, m.routing_key), coalesce(NEW.payload, m.payload))
	THEN
		RAISE EXCEPTION 'payment % is not what the attempt says', NEW.outbox_id
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'An attempt shows the instruction, participant, number, key, rail and payload of its payment.';
	END IF;
	INSERT INTO outbox.attempts (outbox_id, attempt_no, state, worker_id, claimed_at, completed_at,
		reference, response_code, error_code, error_message, latency_ms, recorded_by, created_at)
	VALUES (NEW.outbox_id, NEW.attempt_no, NEW.state, NEW.worker_id, NEW.claimed_at,
		coalesce(NEW.completed_at, CASE WHEN NEW.state IN ('DISPATCHED', 'FAILED') THEN clock_timestamp() END),
		NEW.rail_reference, NEW.rail_code, NEW.error_code, NEW.error_message, NEW.latency_ms, current_user,
		coalesce(NEW.created_at, clock_timestamp()));
	INSERT INTO outbox.dead (outbox_id, queue, died_at)
	SELECT a.outbox_id, 'payment', a.created_at FROM outbox.attempts a
	WHERE a.outbox_id = NEW.outbox_id AND a.attempt_no = NEW.attempt_no AND a.state = 'FAILED'
	ON CONFLICT DO NOTHING;
	-- For RETURNING.
	EXECUTE format('SELECT * FROM %s WHERE outbox_id = $1 AND attempt_no = $2', TG_RELID::regclass) INTO NEW USING NEW.outbox_id, NEW.attempt_no;
	RETURN NEW;
END
$$;
COMMENT ON FUNCTION payment_outbox_attempts_insert() IS
'Trigger function: appends the row to outbox.attempts. What the view shows of the payment may be left out; if given, it must be true. Errors: 23503 no such payment, 428C9 an attempt_id, 22023, and those of the table.';
CREATE TRIGGER append INSTEAD OF INSERT ON payment_outbox_attempts
	FOR EACH ROW EXECUTE FUNCTION payment_outbox_attempts_insert();
COMMENT ON TRIGGER append ON payment_outbox_attempts IS 'lets a superuser append an attempt by hand';

CREATE VIEW participant_outbox_sequences WITH (security_barrier) AS
	SELECT s.partition_key AS participant_id, s.next_sequence_id
	FROM outbox.sequences s WHERE s.queue = 'payment'::text;
COMMENT ON VIEW participant_outbox_sequences IS 'The number that the next payment of each participant will bear. Reads every key of every queue, counts too. Hidden from readers.';
COMMENT ON COLUMN participant_outbox_sequences.participant_id IS 'the participant';
COMMENT ON COLUMN participant_outbox_sequences.next_sequence_id IS 'the number that the next payment will bear';

CREATE TRIGGER refuse INSTEAD OF INSERT OR UPDATE OR DELETE ON participant_outbox_sequences
	FOR EACH ROW EXECUTE FUNCTION payment_outbox_refuse();
COMMENT ON TRIGGER refuse ON participant_outbox_sequences IS 'numbers are taken by the functions';

-- The clock keeps the planner from merging the inner query into the outer one: the ledger is read once if one of its
-- counts is asked for, and not at all if none is.
CREATE VIEW supervisor_outbox_status WITH (security_barrier) AS
	SELECT s.pending_count AS pending_depth, s.leased_count, s.expired_lease_count, s.due_unleased_count,
		s.oldest_pending_age_seconds, s.dead_count AS dlq_depth,
		s.attempts[1] AS dispatched_count, s.attempts[2] AS failed_count, s.attempts[3] AS retryable_count,
		s.attempts[4] AS zombie_requeue_count
	FROM (
		SELECT q.pending_count, q.leased_count, q.expired_lease_count, q.due_unleased_count, q.oldest_pending_age_seconds,
			q.dead_count, pg_catalog.clock_timestamp() AS at,
			(SELECT ARRAY[count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'DISPATCHED'::outbox.attempt_state),
					count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'FAILED'::outbox.attempt_state),
					count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'RETRYABLE'::outbox.attempt_state),
					count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'ZOMBIE_REQUEUE'::outbox.attempt_state)]
				FROM outbox.attempts a JOIN outbox.messages m ON m.outbox_id = a.outbox_id
				WHERE m.queue = 'payment'::text) AS attempts
		FROM outbox.status q WHERE q.queue = 'payment'::text) s;
COMMENT ON VIEW supervisor_outbox_status IS
'One row: the payments that are pending, and the ledger. The first six columns are those of outbox.status, whose column counts says whether they are exact. The counts of attempts read the whole ledger if one of them is asked for; outbox.stats has counters that cost nothing.';
COMMENT ON COLUMN supervisor_outbox_status.pending_depth IS 'payments without a terminal outcome';
COMMENT ON COLUMN supervisor_outbox_status.leased_count IS 'held by a worker';
COMMENT ON COLUMN supervisor_outbox_status.expired_lease_count IS 'held by a worker that lost its lease';
COMMENT ON COLUMN supervisor_outbox_status.due_unleased_count IS 'claimable now';
COMMENT ON COLUMN supervisor_outbox_status.oldest_pending_age_seconds IS 'age of the oldest pending payment; NULL = none';
COMMENT ON COLUMN supervisor_outbox_status.dlq_depth IS 'ended as FAILED, neither replayed nor acknowledged';
COMMENT ON COLUMN supervisor_outbox_status.dispatched_count IS 'attempts in the ledger with state DISPATCHED';
COMMENT ON COLUMN supervisor_outbox_status.failed_count IS 'attempts in the ledger with state FAILED';
COMMENT ON COLUMN supervisor_outbox_status.retryable_count IS 'attempts in the ledger with state RETRYABLE';
COMMENT ON COLUMN supervisor_outbox_status.zombie_requeue_count IS 'attempts in the ledger with state ZOMBIE_REQUEUE';

CREATE VIEW outbox_operational_status WITH (security_barrier) AS
	SELECT o.outbox_id, (o.m).aggregate_id AS instruction_id, o.partition_key AS participant_id, o.sequence_id, (o.m).routing_key AS rail_type,
		o.attempt_count, o.next_attempt_at, o.created_at, o.claimed_by, o.claimed_at, o.lease_expires_at,
		o.last_attempt_no, o.last_attempt_state, o.last_error_code, o.last_error_message, o.last_attempt_at,
		o.state AS derived_state, o.lease_age_seconds, o.time_to_due
	FROM (
		SELECT o.*, outbox.message_facts(o.outbox_id) AS m, pg_catalog.clock_timestamp() AS at
		FROM outbox.operational_status o WHERE o.queue = 'payment'::text) o;
COMMENT ON VIEW outbox_operational_status IS
'One row a pending payment: its lease, its schedule, its last attempt, and what follows from them. Costs two look-ups a row read: narrow it, by outbox_id, participant_id, claimed_by or lease_expires_at. Anything else, counts and an order among them, reads all that is pending.';
COMMENT ON COLUMN outbox_operational_status.outbox_id IS 'the payment';
COMMENT ON COLUMN outbox_operational_status.instruction_id IS 'its instruction';
COMMENT ON COLUMN outbox_operational_status.participant_id IS 'its participant';
COMMENT ON COLUMN outbox_operational_status.sequence_id IS 'its number within the participant';
COMMENT ON COLUMN outbox_operational_status.rail_type IS 'its rail';
COMMENT ON COLUMN outbox_operational_status.attempt_count IS 'attempts in the ledger, as cached';
COMMENT ON COLUMN outbox_operational_status.next_attempt_at IS 'not claimed before';
COMMENT ON COLUMN outbox_operational_status.created_at IS 'when it was enqueued';
COMMENT ON COLUMN outbox_operational_status.claimed_by IS 'the worker that holds it';
COMMENT ON COLUMN outbox_operational_status.claimed_at IS 'since when';
COMMENT ON COLUMN outbox_operational_status.lease_expires_at IS 'until when';
COMMENT ON COLUMN outbox_operational_status.last_attempt_no IS 'number of its last attempt';
COMMENT ON COLUMN outbox_operational_status.last_attempt_state IS 'how that ended';
COMMENT ON COLUMN outbox_operational_status.last_error_code IS 'with which code';
COMMENT ON COLUMN outbox_operational_status.last_error_message IS 'with which message';
COMMENT ON COLUMN outbox_operational_status.last_attempt_at IS 'when it was recorded';
COMMENT ON COLUMN outbox_operational_status.derived_state IS 'due, scheduled, leased or expired, by the wall clock';
COMMENT ON COLUMN outbox_operational_status.lease_age_seconds IS 'seconds since it was leased';
COMMENT ON COLUMN outbox_operational_status.time_to_due IS 'until next_attempt_at; negative when that is past';

---------------------------------------------------------------- owners and rights

ALTER DOMAIN outbox_attempt_state OWNER TO outbox_owner;
ALTER VIEW payment_outbox_pending OWNER TO outbox_owner;
ALTER VIEW payment_outbox_attempts OWNER TO outbox_owner;
ALTER VIEW participant_outbox_sequences OWNER TO outbox_owner;
ALTER VIEW supervisor_outbox_status OWNER TO outbox_owner;
ALTER VIEW outbox_operational_status OWNER TO outbox_owner;
ALTER FUNCTION payment_outbox_refuse() OWNER TO outbox_owner;
ALTER FUNCTION payment_outbox_pending_update() OWNER TO outbox_owner;
ALTER FUNCTION payment_outbox_attempts_insert() OWNER TO outbox_owner;
ALTER FUNCTION payment_outbox_follow_schema() OWNER TO outbox_owner;
ALTER FUNCTION enqueue_payment_outbox(text, text, text, text, jsonb) OWNER TO symphony_control;
ALTER FUNCTION bump_participant_outbox_seq(text) OWNER TO symphony_control;
ALTER FUNCTION claim_outbox_batch(integer, text, integer) OWNER TO symphony_control;
ALTER FUNCTION complete_outbox_attempt(uuid, uuid, text, outbox_attempt_state, text, text, text, text, integer, integer) OWNER TO symphony_control;
ALTER FUNCTION repair_expired_leases(integer, text) OWNER TO symphony_control;

REVOKE ALL ON TYPE outbox_attempt_state FROM PUBLIC;
REVOKE ALL ON payment_outbox_pending, payment_outbox_attempts, participant_outbox_sequences, supervisor_outbox_status,
	outbox_operational_status FROM PUBLIC;
REVOKE ALL ON FUNCTION
	payment_outbox_validator(jsonb, jsonb, text), payment_outbox_follow_schema(),
	payment_outbox_refuse(), payment_outbox_pending_update(), payment_outbox_attempts_insert(),
	enqueue_payment_outbox(text, text, text, text, jsonb), bump_participant_outbox_seq(text),
	claim_outbox_batch(integer, text, integer),
	complete_outbox_attempt(uuid, uuid, text, outbox_attempt_state, text, text, text, text, integer, integer),
	repair_expired_leases(integer, text)
FROM PUBLIC;

GRANT EXECUTE ON FUNCTION enqueue_payment_outbox(text, text, text, text, jsonb) TO symphony_ingest;
GRANT EXECUTE ON FUNCTION
	claim_outbox_batch(integer, text, integer),
	complete_outbox_attempt(uuid, uuid, text, outbox_attempt_state, text, text, text, text, integer, integer),
	repair_expired_leases(integer, text)
TO symphony_executor;
GRANT USAGE ON TYPE outbox_attempt_state TO symphony_executor, symphony_readonly, symphony_auditor, symphony_control;
GRANT SELECT ON payment_outbox_pending, payment_outbox_attempts, supervisor_outbox_status, outbox_operational_status
TO symphony_readonly, symphony_auditor, symphony_control;
GRANT SELECT ON participant_outbox_sequences TO symphony_control;
