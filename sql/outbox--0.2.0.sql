/* outbox 0.2.0: the complete install script.
 *
 * What it guarantees: every object lives in schema outbox, belongs to the role
 * outbox_owner (which cannot log in and is no superuser), carries a COMMENT and
 * gives PUBLIC nothing. messages, attempts and events are append-only for everybody.
 *
 * The parents of the three partitioned tables carry neither index nor check: each
 * leaf has its own, complete set, so that a dump restores cleanly and a detached
 * leaf stays as protected as an attached one.
 */
\echo Use "CREATE EXTENSION outbox" to load this file. \quit

-- Tables are of the kind that the functions know, in the database's own tablespace, which the
-- server refuses to hear by name for partitioned ones.
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
			('outbox_owner', 'owns all objects of the extension outbox'),
			('outbox_ingest', 'outbox: may enqueue'),
			('outbox_executor', 'outbox: may claim, complete, renew, release and repair'),
			('outbox_operator', 'outbox: administers queues, cancels, replays, maintains'),
			('outbox_readonly', 'outbox: reads tables and views'),
			('outbox_auditor', 'outbox: reads tables and views'),
			('outbox_privacy', 'outbox: reveals protected fields, erases subjects, reports about them'),
			('outbox_lookup', 'outbox: reads views of other extensions that call the functions under the views')) AS v(name, meaning)
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

CREATE SCHEMA outbox;
COMMENT ON SCHEMA outbox IS 'transactional outbox: messages, their leases and the ledger of attempts';

---------------------------------------------------------------- types

CREATE TYPE outbox.attempt_state AS ENUM ('DISPATCHED', 'FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE');
COMMENT ON TYPE outbox.attempt_state IS
'How one finished try ended. DISPATCHED and FAILED are terminal. RETRYABLE waits for the next try. ZOMBIE_REQUEUE is a lease that expired. There is no state for in flight: that is a lease on the pending row.';

CREATE CAST (text AS outbox.attempt_state) WITH INOUT AS IMPLICIT;
COMMENT ON CAST (text AS outbox.attempt_state) IS 'lets drivers that send typed text pass a state';
CREATE CAST (varchar AS outbox.attempt_state) WITH INOUT AS IMPLICIT;
COMMENT ON CAST (varchar AS outbox.attempt_state) IS 'lets drivers that send typed varchar pass a state';

CREATE TYPE outbox.claimed AS (outbox_id uuid, queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
	partition_key text, sequence_id bigint, idempotency_key text, routing_key text, priority integer,
	payload jsonb, headers jsonb, attempt_count integer, max_attempts integer, created_at timestamptz,
	payload_bytes bytea, content_type text);
COMMENT ON TYPE outbox.claimed IS
'A message as the handler of its queue gets it: the columns that claim returns, without the lease.';

---------------------------------------------------------------- functions that tables need

CREATE FUNCTION outbox.append_only() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_append_only';
COMMENT ON FUNCTION outbox.append_only() IS
'Trigger function: refuses UPDATE, DELETE and TRUNCATE of the ledger, of audit events and of tables of extensions, and TRUNCATE of outbox.pending, with P0001.';

CREATE FUNCTION outbox.merge_queue() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_merge_queue';
COMMENT ON FUNCTION outbox.merge_queue() IS
'Trigger function: an INSERT of a queue that exists takes over its settings, so that a restored dump keeps the settings of queues which the install script has already made.';

CREATE FUNCTION outbox.pending_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_pending_changed';
COMMENT ON FUNCTION outbox.pending_changed() IS
'Trigger function: makes claims look for rows that SQL, COPY, a restore or replication wrote where they are, and refuses with P0001 to take a message out of outbox.pending by SQL.';

CREATE FUNCTION outbox.key_digest(queue text, partition_key text) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'outbox_key_digest';
COMMENT ON FUNCTION outbox.key_digest(text, text) IS
'SHA-256 that stands for (queue, partition_key) in indexes, so that a long key costs no more than a short one. Takes no locks; about a microsecond.';

---------------------------------------------------------------- queues

CREATE TABLE outbox.queues (
	queue text COLLATE "C" NOT NULL,
	max_attempts integer DEFAULT 20,
	lease interval NOT NULL DEFAULT '30 seconds',
	backoff_base interval NOT NULL DEFAULT '1 second',
	backoff_cap interval NOT NULL DEFAULT '15 minutes',
	backoff_jitter real NOT NULL DEFAULT 0.2,
	repair_delay interval NOT NULL DEFAULT '1 second',
	ordering text COLLATE "C" NOT NULL DEFAULT 'none',
	on_dead_head text COLLATE "C" NOT NULL DEFAULT 'continue',
	validator text,
	paused boolean NOT NULL DEFAULT false,
	max_in_flight integer,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	validator_owner text COLLATE "C",
	payload_kind text COLLATE "C" NOT NULL DEFAULT 'object',
	max_releases integer,
	rate_limit double precision,
	rate_burst integer,
	max_in_flight_per_key integer,
	fair_by text COLLATE "C",
	priority_aging interval,
	handler text,
	handler_timeout interval NOT NULL DEFAULT '30 seconds',
	handler_owner text COLLATE "C",
	dead_letter_queue text COLLATE "C",
	protect jsonb,
	reveal_on_claim boolean NOT NULL DEFAULT false,
	audit_events boolean NOT NULL DEFAULT false,
	CONSTRAINT queues_pkey PRIMARY KEY (queue),
	CONSTRAINT queues_name_length CHECK (pg_catalog.octet_length(queue) BETWEEN 1 AND 63),
	CONSTRAINT queues_max_attempts CHECK (max_attempts >= 1),
	CONSTRAINT queues_lease CHECK (lease > interval '0'),
	CONSTRAINT queues_backoff CHECK (backoff_base >= interval '0' AND backoff_cap >= interval '0'),
	CONSTRAINT queues_jitter CHECK (backoff_jitter BETWEEN 0 AND 1),
	CONSTRAINT queues_repair_delay CHECK (repair_delay >= interval '0'),
	CONSTRAINT queues_ordering CHECK (ordering IN ('none', 'numbered', 'fifo')),
	CONSTRAINT queues_on_dead_head CHECK (on_dead_head IN ('continue', 'block')),
	CONSTRAINT queues_validator CHECK (validator <> '' AND (validator IS NULL) = (validator_owner IS NULL)),
	CONSTRAINT queues_payload_kind CHECK (payload_kind IN ('object', 'any')),
	CONSTRAINT queues_max_releases CHECK (max_releases >= 0),
	CONSTRAINT queues_max_in_flight CHECK (max_in_flight >= 1),
	CONSTRAINT queues_rate_limit CHECK (rate_limit > 0 AND rate_limit < 'Infinity'),
	CONSTRAINT queues_rate_burst CHECK (rate_burst >= 1),
	CONSTRAINT queues_max_in_flight_per_key CHECK (max_in_flight_per_key >= 1),
	CONSTRAINT queues_fair_by CHECK (fair_by IN ('partition_key')),
	CONSTRAINT queues_priority_aging CHECK (priority_aging > interval '0'),
	CONSTRAINT queues_handler CHECK (handler <> '' AND (handler IS NULL) = (handler_owner IS NULL)),
	CONSTRAINT queues_handler_timeout CHECK (handler_timeout > interval '0'),
	CONSTRAINT queues_dead_letter_queue CHECK (dead_letter_queue <> '' AND dead_letter_queue <> queue),
	CONSTRAINT queues_protect CHECK (pg_catalog.jsonb_typeof(protect) = 'object')
);
COMMENT ON TABLE outbox.queues IS 'The queues and their policies. Changed by create_queue, alter_queue, drop_queue, pause and resume.';
COMMENT ON COLUMN outbox.queues.queue IS 'name, 1 to 63 bytes; names that differ in case are different queues';
COMMENT ON COLUMN outbox.queues.max_attempts IS 'ceiling: the attempt with this number is the last; NULL = no ceiling';
COMMENT ON COLUMN outbox.queues.lease IS 'how long a lease lasts unless the worker asks for another time';
COMMENT ON COLUMN outbox.queues.backoff_base IS 'delay before the second attempt; doubles with each further one';
COMMENT ON COLUMN outbox.queues.backoff_cap IS 'no delay is longer than this';
COMMENT ON COLUMN outbox.queues.backoff_jitter IS 'share of the delay, 0 to 1, that may be taken off, as a pure function of message and attempt';
COMMENT ON COLUMN outbox.queues.repair_delay IS 'delay before a message whose lease was lost is due again; 0 = it keeps its place in the order of due messages';
COMMENT ON COLUMN outbox.queues.ordering IS 'none: partition_key is only carried along; numbered: messages of a key carry 1, 2, 3 and so on in commit order; fifo: they are numbered, and leased strictly in that order';
COMMENT ON COLUMN outbox.queues.on_dead_head IS 'what a message that ends as FAILED does to those behind it in a fifo queue; continue: they go on; block: they wait for unblock or replay';
COMMENT ON COLUMN outbox.queues.validator IS 'qualified name of a function f(payload jsonb, headers jsonb, routing_key text) RETURNS text that checks each message: the returned text refuses it, NULL accepts it; NULL here = no validator';
COMMENT ON COLUMN outbox.queues.paused IS 'true: nothing of this queue is claimed';
COMMENT ON COLUMN outbox.queues.max_in_flight IS 'how many of its messages may be leased at a time, expired leases included; NULL = no limit';
COMMENT ON COLUMN outbox.queues.created_at IS 'when the queue was made';
COMMENT ON COLUMN outbox.queues.validator_owner IS 'the role that owned the validator when it was set; it does not run for another owner';
COMMENT ON COLUMN outbox.queues.payload_kind IS 'object: a JSON string that holds a JSON object is refused as encoded twice; any: it is accepted';
COMMENT ON COLUMN outbox.queues.max_releases IS 'how often a message may be released without a try; each further release counts as a try; NULL = no ceiling';
COMMENT ON COLUMN outbox.queues.rate_limit IS 'how many of its messages may be leased in a second, on average; NULL = no limit';
COMMENT ON COLUMN outbox.queues.rate_burst IS 'how many messages rate_limit allows at once after a pause; NULL = those of one second, at least 1';
COMMENT ON COLUMN outbox.queues.max_in_flight_per_key IS 'how many messages of one partition_key may be leased at a time; NULL = no limit';
COMMENT ON COLUMN outbox.queues.fair_by IS 'partition_key: claims take messages of each key in turn; NULL = oldest due first within priority';
COMMENT ON COLUMN outbox.queues.priority_aging IS 'a message that has waited so long since it became due counts one priority higher; NULL = priorities are strict';
COMMENT ON COLUMN outbox.queues.handler IS 'qualified name of a function f(message outbox.claimed) RETURNS void that handles each message inside the database, in one transaction with its outcome; NULL = workers claim the messages';
COMMENT ON COLUMN outbox.queues.handler_timeout IS 'how long the handler may take for one message';
COMMENT ON COLUMN outbox.queues.handler_owner IS 'the role that owned the handler when it was set; it does not run for another owner';
COMMENT ON COLUMN outbox.queues.dead_letter_queue IS 'the queue into which a message outbox.dead_letter is enqueued in the transaction that ends a message of this one as FAILED; NULL = none';
COMMENT ON COLUMN outbox.queues.protect IS 'what enqueue protects by itself: {"subject": "$.customer_id", "fields": ["$.email"]}; NULL = nothing';
COMMENT ON COLUMN outbox.queues.reveal_on_claim IS 'true: claims, and the handler, get protected fields in plain text';
COMMENT ON COLUMN outbox.queues.audit_events IS 'true: claims, renewals, releases, completions and what was refused leave rows in outbox.events';
COMMENT ON CONSTRAINT queues_pkey ON outbox.queues IS 'one row for each queue';
COMMENT ON INDEX outbox.queues_pkey IS 'one row for each queue';
COMMENT ON CONSTRAINT queues_name_length ON outbox.queues IS 'a queue name is a NOTIFY payload too';
COMMENT ON CONSTRAINT queues_max_attempts ON outbox.queues IS 'a message gets at least one try';
COMMENT ON CONSTRAINT queues_lease ON outbox.queues IS 'a lease is longer than zero';
COMMENT ON CONSTRAINT queues_backoff ON outbox.queues IS 'delays are not negative';
COMMENT ON CONSTRAINT queues_jitter ON outbox.queues IS 'jitter is between 0 and 1';
COMMENT ON CONSTRAINT queues_repair_delay ON outbox.queues IS 'delays are not negative';
COMMENT ON CONSTRAINT queues_ordering ON outbox.queues IS 'the orderings this version knows';
COMMENT ON CONSTRAINT queues_on_dead_head ON outbox.queues IS 'the choices this version knows';
COMMENT ON CONSTRAINT queues_validator ON outbox.queues IS 'none is NULL; one has the owner it was set for';
COMMENT ON CONSTRAINT queues_payload_kind ON outbox.queues IS 'the kinds this version knows';
COMMENT ON CONSTRAINT queues_max_releases ON outbox.queues IS 'with 0 each release counts as a try';
COMMENT ON CONSTRAINT queues_max_in_flight ON outbox.queues IS 'a queue whose messages are never leased is paused instead';
COMMENT ON CONSTRAINT queues_rate_limit ON outbox.queues IS 'a queue whose messages are never leased is paused instead';
COMMENT ON CONSTRAINT queues_rate_burst ON outbox.queues IS 'at least one message is leased at once';
COMMENT ON CONSTRAINT queues_max_in_flight_per_key ON outbox.queues IS 'each key may have a message leased';
COMMENT ON CONSTRAINT queues_fair_by ON outbox.queues IS 'the choices this version knows';
COMMENT ON CONSTRAINT queues_priority_aging ON outbox.queues IS 'a priority takes longer than zero to rise';
COMMENT ON CONSTRAINT queues_handler ON outbox.queues IS 'a handler has a name and an owner';
COMMENT ON CONSTRAINT queues_handler_timeout ON outbox.queues IS 'a handler gets some time';
COMMENT ON CONSTRAINT queues_protect ON outbox.queues IS 'a rule has a subject and fields; none is NULL';
COMMENT ON CONSTRAINT queues_dead_letter_queue ON outbox.queues IS 'none is NULL; dead letters are told to another queue';

CREATE TRIGGER merge_queue BEFORE INSERT ON outbox.queues
	FOR EACH ROW EXECUTE FUNCTION outbox.merge_queue();
ALTER TABLE outbox.queues ENABLE ALWAYS TRIGGER merge_queue;
COMMENT ON TRIGGER merge_queue ON outbox.queues IS 'lets a dump restore the settings of queues that exist';

---------------------------------------------------------------- messages

CREATE TABLE outbox.messages (
	outbox_id uuid NOT NULL,
	queue text COLLATE "C" NOT NULL,
	event_id uuid NOT NULL,
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text,
	partition_key text,
	sequence_id bigint,
	idempotency_key text,
	routing_key text,
	priority smallint NOT NULL,
	max_attempts integer,
	payload jsonb,
	headers jsonb NOT NULL,
	replay_of uuid,
	created_at timestamptz NOT NULL,
	payload_bytes bytea,
	content_type text
) PARTITION BY RANGE (outbox_id);
COMMENT ON TABLE outbox.messages IS 'The messages: append-only, one row for each message, partitioned by the time in outbox_id.';
COMMENT ON COLUMN outbox.messages.outbox_id IS 'UUIDv7 made by enqueue; unique';
COMMENT ON COLUMN outbox.messages.queue IS 'the queue it was enqueued into';
COMMENT ON COLUMN outbox.messages.event_id IS 'the id on which consumers deduplicate: outbox_id unless the producer gave one; a replay keeps it';
COMMENT ON COLUMN outbox.messages.event_type IS 'what happened';
COMMENT ON COLUMN outbox.messages.aggregate_type IS 'kind of the thing it happened to';
COMMENT ON COLUMN outbox.messages.aggregate_id IS 'the thing it happened to; scope of idempotency_key';
COMMENT ON COLUMN outbox.messages.partition_key IS 'the group of the message; in a numbered queue the key of its number';
COMMENT ON COLUMN outbox.messages.sequence_id IS 'number within (queue, partition_key) if the queue is numbered; else NULL';
COMMENT ON COLUMN outbox.messages.idempotency_key IS 'a repeated enqueue with this key has no effect';
COMMENT ON COLUMN outbox.messages.routing_key IS 'carried along for the delivery';
COMMENT ON COLUMN outbox.messages.priority IS '0 to 15, higher first';
COMMENT ON COLUMN outbox.messages.max_attempts IS 'ceiling of this message; NULL = the queue''s';
COMMENT ON COLUMN outbox.messages.payload IS 'the event; NULL = it is payload_bytes';
COMMENT ON COLUMN outbox.messages.headers IS 'JSON object carried along';
COMMENT ON COLUMN outbox.messages.replay_of IS 'the dead letter that this message replays';
COMMENT ON COLUMN outbox.messages.created_at IS 'wall clock of the enqueue';
COMMENT ON COLUMN outbox.messages.payload_bytes IS 'the event, byte for byte as it was given; NULL = it is payload';
COMMENT ON COLUMN outbox.messages.content_type IS 'the type of the payload, for the delivery';

-- A payload of up to a page stays in the row: out of line it costs a third more.
CREATE TABLE outbox.messages_default PARTITION OF outbox.messages (
	CONSTRAINT messages_default_pkey PRIMARY KEY (outbox_id),
	CONSTRAINT messages_one_payload CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
) DEFAULT WITH (toast_tuple_target = 8160);
COMMENT ON TABLE outbox.messages_default IS 'Messages of no dated partition: an insert never fails because a partition is missing.';
COMMENT ON CONSTRAINT messages_default_pkey ON outbox.messages_default IS 'a message is written once';
COMMENT ON INDEX outbox.messages_default_pkey IS 'a message is written once';
COMMENT ON CONSTRAINT messages_one_payload ON outbox.messages_default IS 'a message has one payload, JSON or bytes';

---------------------------------------------------------------- attempts

CREATE TABLE outbox.attempts (
	outbox_id uuid NOT NULL,
	attempt_no integer NOT NULL,
	state outbox.attempt_state NOT NULL,
	worker_id text,
	lease_token uuid,
	claimed_at timestamptz,
	completed_at timestamptz,
	reference text,
	response_code text,
	error_code text,
	error_message text,
	latency_ms integer,
	recorded_by text,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) PARTITION BY RANGE (outbox_id);
COMMENT ON TABLE outbox.attempts IS 'The ledger: append-only, one row for each finished attempt. All attempts of a message lie in the partition of its outbox_id.';
COMMENT ON COLUMN outbox.attempts.outbox_id IS 'the message';
COMMENT ON COLUMN outbox.attempts.attempt_no IS '1, 2, 3 and so on per message';
COMMENT ON COLUMN outbox.attempts.state IS 'how the try ended';
COMMENT ON COLUMN outbox.attempts.worker_id IS 'the worker that held the lease; NULL if none did';
COMMENT ON COLUMN outbox.attempts.lease_token IS 'the lease under which the try ran';
COMMENT ON COLUMN outbox.attempts.claimed_at IS 'when that lease began';
COMMENT ON COLUMN outbox.attempts.completed_at IS 'when the message ended; NULL unless the state is terminal';
COMMENT ON COLUMN outbox.attempts.reference IS 'the receiver''s reference';
COMMENT ON COLUMN outbox.attempts.response_code IS 'the receiver''s answer';
COMMENT ON COLUMN outbox.attempts.error_code IS 'the worker''s code, or RETRIES_EXHAUSTED, RELEASES_EXHAUSTED, LEASE_EXPIRED, LEASE_BROKEN, CANCELLED';
COMMENT ON COLUMN outbox.attempts.error_message IS 'what went wrong, or the reason of a cancellation';
COMMENT ON COLUMN outbox.attempts.latency_ms IS 'milliseconds the delivery took, as the worker measured';
COMMENT ON COLUMN outbox.attempts.recorded_by IS 'who wrote this row: the worker, the repairer, or the role that cancelled';
COMMENT ON COLUMN outbox.attempts.created_at IS 'wall clock when the row was written';

CREATE TABLE outbox.attempts_default PARTITION OF outbox.attempts (
	CONSTRAINT attempts_default_pkey PRIMARY KEY (outbox_id, attempt_no),
	CONSTRAINT attempts_number CHECK (attempt_no >= 1),
	CONSTRAINT attempts_completed_at CHECK ((completed_at IS NOT NULL) = (state IN ('DISPATCHED', 'FAILED')))
) DEFAULT;
CREATE UNIQUE INDEX attempts_default_one_terminal_per_outbox ON outbox.attempts_default (outbox_id)
	WHERE state IN ('DISPATCHED', 'FAILED');
CREATE INDEX attempts_default_failed ON outbox.attempts_default (outbox_id)
	WHERE state = 'FAILED';
COMMENT ON TABLE outbox.attempts_default IS 'Attempts of the messages in messages_default.';
COMMENT ON CONSTRAINT attempts_default_pkey ON outbox.attempts_default IS 'an attempt number is used once a message';
COMMENT ON INDEX outbox.attempts_default_pkey IS 'an attempt number is used once a message';
COMMENT ON CONSTRAINT attempts_number ON outbox.attempts_default IS 'attempts count from 1';
COMMENT ON CONSTRAINT attempts_completed_at ON outbox.attempts_default IS 'only a terminal attempt completes a message';
COMMENT ON INDEX outbox.attempts_default_one_terminal_per_outbox IS
'Invariant: at most one terminal attempt (DISPATCHED or FAILED) per message, ever. It holds globally because all attempts of a message lie in one partition.';
COMMENT ON INDEX outbox.attempts_default_failed IS 'finds dead letters without reading delivered history';

---------------------------------------------------------------- audit events

CREATE TABLE outbox.events (
	event_id uuid NOT NULL,
	event text COLLATE "C" NOT NULL,
	at timestamptz NOT NULL,
	queue text COLLATE "C",
	worker_id text,
	actor text NOT NULL,
	outbox_ids uuid[],
	attempt_nos integer[],
	lease_expires_at timestamptz,
	detail jsonb NOT NULL
) PARTITION BY RANGE (event_id);
-- Ids do not compress, and a call of 100 messages stays in the row.
ALTER TABLE outbox.events ALTER COLUMN outbox_ids SET STORAGE EXTERNAL;
COMMENT ON TABLE outbox.events IS 'The audit events: append-only, what is no attempt but an auditor asks for. One row for each call and queue, written by the transaction that it tells of; partitioned by the time in event_id.';
COMMENT ON COLUMN outbox.events.event_id IS 'UUIDv7 of the row; unique';
COMMENT ON COLUMN outbox.events.event IS 'what happened: LEASE_CLAIMED, QUEUE_ALTERED and so on';
COMMENT ON COLUMN outbox.events.at IS 'wall clock when the row was written';
COMMENT ON COLUMN outbox.events.queue IS 'the queue; NULL = it concerns no single queue';
COMMENT ON COLUMN outbox.events.worker_id IS 'the worker that the call named; NULL = none';
COMMENT ON COLUMN outbox.events.actor IS 'the session user';
COMMENT ON COLUMN outbox.events.outbox_ids IS 'the messages of the call; NULL = it concerns none';
COMMENT ON COLUMN outbox.events.attempt_nos IS 'the number of the attempt of each of outbox_ids, in the same order; NULL = it concerns no attempt';
COMMENT ON COLUMN outbox.events.lease_expires_at IS 'when the leases end, the latest of several; NULL = it gave none';
COMMENT ON COLUMN outbox.events.detail IS 'application_name and client_addr of the session, and what else belongs to the event';

CREATE TABLE outbox.events_default PARTITION OF outbox.events (
	CONSTRAINT events_default_pkey PRIMARY KEY (event_id)
) DEFAULT WITH (toast_tuple_target = 8160);
ALTER TABLE outbox.events_default ALTER COLUMN outbox_ids SET STORAGE EXTERNAL;
COMMENT ON TABLE outbox.events_default IS 'Audit events of no dated partition.';
COMMENT ON CONSTRAINT events_default_pkey ON outbox.events_default IS 'an audit event is written once';
COMMENT ON INDEX outbox.events_default_pkey IS 'an audit event is written once';

---------------------------------------------------------------- pending

-- What is never NULL and of one length comes first, where the server finds it without reading what is before it.
CREATE TABLE outbox.pending (
	outbox_id uuid NOT NULL,
	next_attempt_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	attempt_count integer NOT NULL DEFAULT 0,
	release_count integer NOT NULL DEFAULT 0,
	priority smallint NOT NULL DEFAULT 0,
	held_back boolean NOT NULL DEFAULT false,
	queue text COLLATE "C" NOT NULL,
	partition_key text,
	sequence_id bigint,
	max_attempts integer,
	fair_key bigint,
	claimed_by text COLLATE "C",
	claimed_at timestamptz,
	lease_token uuid,
	lease_expires_at timestamptz,
	CONSTRAINT pending_pkey PRIMARY KEY (outbox_id),
	CONSTRAINT pending_lease_is_whole CHECK (pg_catalog.num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) IN (0, 4)),
	CONSTRAINT pending_priority CHECK (priority BETWEEN 0 AND 15),
	CONSTRAINT pending_release_count CHECK (release_count >= 0),
	CONSTRAINT pending_times_are_finite CHECK (pg_catalog.isfinite(next_attempt_at) AND pg_catalog.isfinite(created_at)
		AND pg_catalog.isfinite(claimed_at) AND pg_catalog.isfinite(lease_expires_at)),
	CONSTRAINT pending_held_back_has_number CHECK (NOT held_back OR sequence_id IS NOT NULL)
-- Room on its page for the leased version of each row: it need not look for another page, WAL
-- says only what changed, and the version that it leaves behind is pruned where the claim is.
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX pending_due ON outbox.pending (queue, priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back;
CREATE INDEX pending_held_back ON outbox.pending (queue) WHERE held_back;
-- One of these columns is set when all are: so that a query finds the index by whichever it names.
CREATE INDEX pending_lease ON outbox.pending (lease_expires_at, claimed_by)
	WHERE claimed_by IS NOT NULL OR claimed_at IS NOT NULL OR lease_expires_at IS NOT NULL;
CREATE UNIQUE INDEX pending_key_sequence ON outbox.pending (outbox.key_digest(queue, partition_key), sequence_id)
	WHERE sequence_id IS NOT NULL;
-- A row is in one of these at most: to lease it costs no more entries than in a queue that is not fair, and one where the leases of a key are limited.
CREATE INDEX pending_fair ON outbox.pending (priority DESC, fair_key, next_attempt_at)
	WHERE fair_key IS NOT NULL AND NOT held_back AND lease_expires_at IS NULL;
CREATE INDEX pending_fair_lease ON outbox.pending (fair_key) WHERE fair_key < 0 AND lease_expires_at IS NOT NULL;
COMMENT ON TABLE outbox.pending IS 'The work record of each message that has no terminal outcome yet, and its lease. In flight is a lease here, never an attempt.';
COMMENT ON COLUMN outbox.pending.outbox_id IS 'the message';
COMMENT ON COLUMN outbox.pending.queue IS 'its queue';
COMMENT ON COLUMN outbox.pending.priority IS '0 to 15, higher first';
COMMENT ON COLUMN outbox.pending.partition_key IS 'its partition key';
COMMENT ON COLUMN outbox.pending.sequence_id IS 'its number within (queue, partition_key), or NULL';
COMMENT ON COLUMN outbox.pending.attempt_count IS 'cache of the attempts in the ledger; only ever grows; the ledger is the truth';
COMMENT ON COLUMN outbox.pending.max_attempts IS 'ceiling of this message; NULL = the queue''s';
COMMENT ON COLUMN outbox.pending.next_attempt_at IS 'not claimed before';
COMMENT ON COLUMN outbox.pending.created_at IS 'wall clock of the enqueue';
COMMENT ON COLUMN outbox.pending.claimed_by IS 'lease: the worker; NULL = unleased';
COMMENT ON COLUMN outbox.pending.claimed_at IS 'lease: since when';
COMMENT ON COLUMN outbox.pending.lease_token IS 'lease: the fencing token that completion must show';
COMMENT ON COLUMN outbox.pending.lease_expires_at IS 'lease: until when; afterwards it is void';
COMMENT ON COLUMN outbox.pending.release_count IS 'how often it was released untried, since a release last counted as a try';
COMMENT ON COLUMN outbox.pending.held_back IS 'it is in a fifo queue, and an earlier message of its partition_key has not ended: it is leased only together with that';
COMMENT ON COLUMN outbox.pending.fair_key IS 'in a queue with fair_by or max_in_flight_per_key: stands for (queue, partition_key), in 20 and 43 bits, and is negative where max_in_flight_per_key is set; NULL in other queues';
COMMENT ON CONSTRAINT pending_pkey ON outbox.pending IS 'a message is pending once';
COMMENT ON INDEX outbox.pending_pkey IS 'a message is pending once';
COMMENT ON CONSTRAINT pending_lease_is_whole ON outbox.pending IS 'the four lease columns are all NULL or all set';
COMMENT ON CONSTRAINT pending_priority ON outbox.pending IS 'priorities are between 0 and 15';
COMMENT ON CONSTRAINT pending_release_count ON outbox.pending IS 'releases count from 0';
COMMENT ON CONSTRAINT pending_times_are_finite ON outbox.pending IS 'times are finite';
COMMENT ON CONSTRAINT pending_held_back_has_number ON outbox.pending IS 'only an ordered message is behind another';
COMMENT ON INDEX outbox.pending_due IS 'the order of claims: a row stands where it becomes claimable, so rows leased by others are not at the head; of an ordered key only the head';
COMMENT ON INDEX outbox.pending_held_back IS 'counts the messages of a queue that are behind others';
COMMENT ON INDEX outbox.pending_lease IS 'finds expired leases, and one worker''s leases, without reading pending';
COMMENT ON INDEX outbox.pending_fair IS 'the order of claims in a queue that serves keys in turn: what no worker holds, by key';
COMMENT ON INDEX outbox.pending_fair_lease IS 'counts the leases of a key that max_in_flight_per_key limits';
COMMENT ON INDEX outbox.pending_key_sequence IS 'two pending messages never share (queue, partition_key, sequence_id)';

---------------------------------------------------------------- keys, numbers, replays

CREATE TABLE outbox.idempotency_keys (
	digest bytea NOT NULL,
	queue text COLLATE "C" NOT NULL,
	outbox_id uuid NOT NULL,
	CONSTRAINT idempotency_keys_pkey PRIMARY KEY (digest)
);
COMMENT ON TABLE outbox.idempotency_keys IS 'The keys that producers used, and the message each stands for. Not partitioned: uniqueness crosses time. A row never holds old data.';
COMMENT ON COLUMN outbox.idempotency_keys.digest IS 'SHA-256 of (queue, aggregate_id or empty, idempotency_key) or of (queue, event_id)';
COMMENT ON COLUMN outbox.idempotency_keys.queue IS 'the queue';
COMMENT ON COLUMN outbox.idempotency_keys.outbox_id IS 'the message that was first';
COMMENT ON CONSTRAINT idempotency_keys_pkey ON outbox.idempotency_keys IS 'a key stands for one message';
COMMENT ON INDEX outbox.idempotency_keys_pkey IS 'a key stands for one message';

CREATE TABLE outbox.key_numbers (
	digest bytea NOT NULL,
	upto bigint NOT NULL,
	queue text COLLATE "C" NOT NULL,
	partition_key text NOT NULL,
	outbox_id uuid NOT NULL,
	CONSTRAINT key_numbers_pkey PRIMARY KEY (digest, upto)
);
COMMENT ON TABLE outbox.key_numbers IS 'The last number of each (queue, partition_key). Taking numbers inserts the new row and deletes the one before it; the next producer of the key waits for the transaction of the uncommitted row.';
COMMENT ON COLUMN outbox.key_numbers.digest IS 'outbox.key_digest(queue, partition_key)';
COMMENT ON COLUMN outbox.key_numbers.upto IS 'the last number taken';
COMMENT ON COLUMN outbox.key_numbers.queue IS 'the queue';
COMMENT ON COLUMN outbox.key_numbers.partition_key IS 'the partition key';
COMMENT ON COLUMN outbox.key_numbers.outbox_id IS 'the message that carries it';
COMMENT ON CONSTRAINT key_numbers_pkey ON outbox.key_numbers IS 'a number is taken once a key';
COMMENT ON INDEX outbox.key_numbers_pkey IS 'a number is taken once a key';

CREATE TABLE outbox.key_marks (
	mark_id uuid NOT NULL,
	digest bytea NOT NULL,
	queue text COLLATE "C" NOT NULL,
	partition_key text NOT NULL,
	kind text COLLATE "C" NOT NULL,
	sequence_id bigint NOT NULL,
	outbox_id uuid,
	created_at timestamptz NOT NULL,
	CONSTRAINT key_marks_pkey PRIMARY KEY (mark_id),
	CONSTRAINT key_marks_kind CHECK (kind IN ('drained', 'gap', 'blocked'))
);
CREATE INDEX key_marks_key ON outbox.key_marks (queue, digest);
CREATE INDEX key_marks_drained ON outbox.key_marks (queue, digest) WHERE kind = 'drained';
COMMENT ON TABLE outbox.key_marks IS 'What is known of keys of fifo queues beyond their pending messages: which are blocked by a dead head, and for a moment, which may have to go on. The functions write and remove it.';
COMMENT ON COLUMN outbox.key_marks.mark_id IS 'a random id';
COMMENT ON COLUMN outbox.key_marks.digest IS 'outbox.key_digest(queue, partition_key)';
COMMENT ON COLUMN outbox.key_marks.queue IS 'the queue';
COMMENT ON COLUMN outbox.key_marks.partition_key IS 'the partition key';
COMMENT ON COLUMN outbox.key_marks.kind IS 'drained: a message was enqueued while the one before it ended, and the key may have to go on; gap: a message was ended before those in front of it, or replayed; blocked: a dead head holds the key';
COMMENT ON COLUMN outbox.key_marks.sequence_id IS 'the number of that message; drained: all numbers up to it have ended, if it has';
COMMENT ON COLUMN outbox.key_marks.outbox_id IS 'that message';
COMMENT ON COLUMN outbox.key_marks.created_at IS 'since when';
COMMENT ON CONSTRAINT key_marks_pkey ON outbox.key_marks IS 'transactions leave marks without waiting for one another';
COMMENT ON INDEX outbox.key_marks_pkey IS 'transactions leave marks without waiting for one another';
COMMENT ON CONSTRAINT key_marks_kind ON outbox.key_marks IS 'the kinds this version knows';
COMMENT ON INDEX outbox.key_marks_key IS 'finds the marks of a key';
COMMENT ON INDEX outbox.key_marks_drained IS 'finds the marks that are to be settled';

CREATE TABLE outbox.replays (
	outbox_id uuid NOT NULL,
	replay_id uuid NOT NULL,
	created_at timestamptz NOT NULL,
	CONSTRAINT replays_pkey PRIMARY KEY (outbox_id)
);
COMMENT ON TABLE outbox.replays IS 'The dead letters that were replayed, each at most once.';
COMMENT ON COLUMN outbox.replays.outbox_id IS 'the dead letter';
COMMENT ON COLUMN outbox.replays.replay_id IS 'the message that replays it';
COMMENT ON COLUMN outbox.replays.created_at IS 'when';
COMMENT ON CONSTRAINT replays_pkey ON outbox.replays IS 'a dead letter is replayed at most once';
COMMENT ON INDEX outbox.replays_pkey IS 'a dead letter is replayed at most once';

CREATE TABLE outbox.dead (
	outbox_id uuid NOT NULL,
	queue text COLLATE "C" NOT NULL,
	died_at timestamptz NOT NULL,
	acknowledged_at timestamptz,
	acknowledged_by text,
	reason text,
	CONSTRAINT dead_pkey PRIMARY KEY (outbox_id),
	CONSTRAINT dead_acknowledgement_is_whole CHECK (pg_catalog.num_nulls(acknowledged_at, acknowledged_by, reason) IN (0, 3))
);
CREATE INDEX dead_open ON outbox.dead (queue) WHERE acknowledged_at IS NULL;
COMMENT ON TABLE outbox.dead IS 'The dead letters: a row for each message that ended as FAILED and was not replayed. The functions write it in the transaction that ends or replays the message; the ledger has the cause.';
COMMENT ON COLUMN outbox.dead.outbox_id IS 'the message';
COMMENT ON COLUMN outbox.dead.queue IS 'its queue';
COMMENT ON COLUMN outbox.dead.died_at IS 'when its terminal attempt was written';
COMMENT ON COLUMN outbox.dead.acknowledged_at IS 'when acknowledge_dead was called for it; NULL = it waits for a decision';
COMMENT ON COLUMN outbox.dead.acknowledged_by IS 'the role that called';
COMMENT ON COLUMN outbox.dead.reason IS 'the reason that the caller gave';
COMMENT ON CONSTRAINT dead_pkey ON outbox.dead IS 'a message dies once';
COMMENT ON INDEX outbox.dead_pkey IS 'a message dies once';
COMMENT ON CONSTRAINT dead_acknowledgement_is_whole ON outbox.dead IS 'the three columns of an acknowledgement are all NULL or all set';
COMMENT ON INDEX outbox.dead_open IS 'counts the dead letters of a queue that wait for a decision';

CREATE TABLE outbox.retired_numbers (
	outbox_id uuid NOT NULL,
	sequence_id bigint NOT NULL,
	CONSTRAINT retired_numbers_pkey PRIMARY KEY (outbox_id)
);
COMMENT ON TABLE outbox.retired_numbers IS 'The numbers of messages whose partition was retired and whose idempotency key or event_id is remembered: a repeated enqueue returns them.';
COMMENT ON COLUMN outbox.retired_numbers.outbox_id IS 'the message that was first';
COMMENT ON COLUMN outbox.retired_numbers.sequence_id IS 'its number within its key';
COMMENT ON CONSTRAINT retired_numbers_pkey ON outbox.retired_numbers IS 'a message has one number';
COMMENT ON INDEX outbox.retired_numbers_pkey IS 'a message has one number';

CREATE TABLE outbox.rate_spending (
	queue text COLLATE "C" NOT NULL,
	spent_until bigint NOT NULL,
	started_at timestamptz NOT NULL,
	CONSTRAINT rate_spending_pkey PRIMARY KEY (queue)
);
COMMENT ON TABLE outbox.rate_spending IS 'What claims have spent of the rate_limit of queues where shared memory does not hold it: without shared_preload_libraries. No dump contains it.';
COMMENT ON COLUMN outbox.rate_spending.queue IS 'the queue';
COMMENT ON COLUMN outbox.rate_spending.spent_until IS 'all that the rate allowed until then is spent: nanoseconds of the clock of the machine, which never steps';
COMMENT ON COLUMN outbox.rate_spending.started_at IS 'the start of the server in which this holds';
COMMENT ON CONSTRAINT rate_spending_pkey ON outbox.rate_spending IS 'one row for each queue';
COMMENT ON INDEX outbox.rate_spending_pkey IS 'one row for each queue';

CREATE TABLE outbox.retention (
	one boolean NOT NULL DEFAULT true,
	keep interval,
	dead_letters interval,
	archive_schema text,
	CONSTRAINT retention_pkey PRIMARY KEY (one),
	CONSTRAINT retention_is_one_row CHECK (one)
);
COMMENT ON TABLE outbox.retention IS 'How long old data is kept: one row; no row means without limit. Written by set_retention.';
COMMENT ON COLUMN outbox.retention.one IS 'true: there is no second row';
COMMENT ON COLUMN outbox.retention.keep IS 'age, since they ended, at which messages are retired; NULL = never';
COMMENT ON COLUMN outbox.retention.dead_letters IS 'age until which a dead letter that was not replayed keeps its partition; NULL = without limit';
COMMENT ON COLUMN outbox.retention.archive_schema IS 'schema that retired partitions are moved to; NULL = they are dropped';
COMMENT ON CONSTRAINT retention_pkey ON outbox.retention IS 'there is one policy';
COMMENT ON INDEX outbox.retention_pkey IS 'there is one policy';
COMMENT ON CONSTRAINT retention_is_one_row ON outbox.retention IS 'there is one policy';

---------------------------------------------------------------- privacy: tables

CREATE TABLE outbox.subject_hash_key (
	one boolean NOT NULL DEFAULT true,
	key_id text COLLATE "C" NOT NULL,
	wrapped bytea NOT NULL,
	lineage text COLLATE "C" NOT NULL,
	created_at timestamptz NOT NULL,
	CONSTRAINT subject_hash_key_pkey PRIMARY KEY (one),
	CONSTRAINT subject_hash_key_is_one_row CHECK (one)
);
COMMENT ON TABLE outbox.subject_hash_key IS 'The key with which the hashes of subjects are made, wrapped by the master key: one row from the first use of outbox.protect on. Who can open it has the right master key.';
COMMENT ON COLUMN outbox.subject_hash_key.one IS 'true: there is no second row';
COMMENT ON COLUMN outbox.subject_hash_key.key_id IS 'the master key that wraps it';
COMMENT ON COLUMN outbox.subject_hash_key.wrapped IS 'nonce, ciphertext and tag of AES-256-GCM';
COMMENT ON COLUMN outbox.subject_hash_key.lineage IS 'cluster, database and timeline in which erasures are known to be complete; another one means that the database was restored or promoted';
COMMENT ON COLUMN outbox.subject_hash_key.created_at IS 'when it was made';
COMMENT ON CONSTRAINT subject_hash_key_pkey ON outbox.subject_hash_key IS 'there is one key';
COMMENT ON INDEX outbox.subject_hash_key_pkey IS 'there is one key';
COMMENT ON CONSTRAINT subject_hash_key_is_one_row ON outbox.subject_hash_key IS 'there is one key';

CREATE TABLE outbox.subject_keys (
	subject_hash bytea NOT NULL,
	sid uuid NOT NULL,
	key_id text COLLATE "C" NOT NULL,
	wrapped bytea NOT NULL,
	created_at timestamptz NOT NULL,
	CONSTRAINT subject_keys_pkey PRIMARY KEY (subject_hash)
);
CREATE UNIQUE INDEX subject_keys_sid ON outbox.subject_keys (sid);
COMMENT ON TABLE outbox.subject_keys IS 'The keys that encrypt protected fields, one for each subject, wrapped by the master key. To erase a subject is to delete its row.';
COMMENT ON COLUMN outbox.subject_keys.subject_hash IS 'HMAC-SHA-256 of the subject''s name';
COMMENT ON COLUMN outbox.subject_keys.sid IS 'names the key in protected values';
COMMENT ON COLUMN outbox.subject_keys.key_id IS 'the master key that wraps it';
COMMENT ON COLUMN outbox.subject_keys.wrapped IS 'nonce, ciphertext and tag of AES-256-GCM';
COMMENT ON COLUMN outbox.subject_keys.created_at IS 'when it was made';
COMMENT ON CONSTRAINT subject_keys_pkey ON outbox.subject_keys IS 'a subject has one key';
COMMENT ON INDEX outbox.subject_keys_pkey IS 'a subject has one key';
COMMENT ON INDEX outbox.subject_keys_sid IS 'finds the key of a protected value';

CREATE TABLE outbox.subjects (
	sid uuid NOT NULL,
	subject_hash bytea NOT NULL,
	created_at timestamptz NOT NULL,
	CONSTRAINT subjects_pkey PRIMARY KEY (sid)
);
CREATE INDEX subjects_subject ON outbox.subjects (subject_hash);
COMMENT ON TABLE outbox.subjects IS 'Each key that a subject ever had, also destroyed ones; append-only. The subject''s name is nowhere.';
COMMENT ON COLUMN outbox.subjects.sid IS 'names the key in protected values';
COMMENT ON COLUMN outbox.subjects.subject_hash IS 'HMAC-SHA-256 of the subject''s name';
COMMENT ON COLUMN outbox.subjects.created_at IS 'when the key was made';
COMMENT ON CONSTRAINT subjects_pkey ON outbox.subjects IS 'a sid names one key';
COMMENT ON INDEX outbox.subjects_pkey IS 'a sid names one key';
COMMENT ON INDEX outbox.subjects_subject IS 'finds the keys of a subject';

CREATE TABLE outbox.erasures (
	certificate uuid NOT NULL,
	subject_hash bytea NOT NULL,
	sid uuid,
	reason text NOT NULL,
	requested_by text NOT NULL,
	erased_by text NOT NULL,
	erased_at timestamptz NOT NULL,
	messages bigint NOT NULL,
	seal_no bigint,
	CONSTRAINT erasures_pkey PRIMARY KEY (certificate)
);
CREATE INDEX erasures_sid ON outbox.erasures (sid) WHERE sid IS NOT NULL;
CREATE INDEX erasures_subject ON outbox.erasures (subject_hash);
COMMENT ON TABLE outbox.erasures IS 'A certificate of each erasure; append-only.';
COMMENT ON COLUMN outbox.erasures.certificate IS 'what erase_subject returned';
COMMENT ON COLUMN outbox.erasures.subject_hash IS 'HMAC-SHA-256 of the subject''s name';
COMMENT ON COLUMN outbox.erasures.sid IS 'the key that was destroyed; NULL = the subject had none';
COMMENT ON COLUMN outbox.erasures.reason IS 'the reason that the caller gave';
COMMENT ON COLUMN outbox.erasures.requested_by IS 'who asked for it, as the caller says';
COMMENT ON COLUMN outbox.erasures.erased_by IS 'the role that called';
COMMENT ON COLUMN outbox.erasures.erased_at IS 'when';
COMMENT ON COLUMN outbox.erasures.messages IS 'how many messages had fields under this key';
COMMENT ON COLUMN outbox.erasures.seal_no IS 'the last seal at that time; NULL = there was none';
COMMENT ON CONSTRAINT erasures_pkey ON outbox.erasures IS 'a certificate has one number';
COMMENT ON INDEX outbox.erasures_pkey IS 'a certificate has one number';
COMMENT ON INDEX outbox.erasures_sid IS 'finds out when the key of a protected value was destroyed';
COMMENT ON INDEX outbox.erasures_subject IS 'finds the erasures of a subject';

CREATE TABLE outbox.subject_messages (
	sid uuid NOT NULL,
	outbox_id uuid NOT NULL,
	CONSTRAINT subject_messages_pkey PRIMARY KEY (sid, outbox_id)
);
CREATE INDEX subject_messages_message ON outbox.subject_messages (outbox_id);
COMMENT ON TABLE outbox.subject_messages IS 'Which messages have fields under which key, written as they are enqueued.';
COMMENT ON COLUMN outbox.subject_messages.sid IS 'the key';
COMMENT ON COLUMN outbox.subject_messages.outbox_id IS 'the message';
COMMENT ON CONSTRAINT subject_messages_pkey ON outbox.subject_messages IS 'a message stands once under a key';
COMMENT ON INDEX outbox.subject_messages_pkey IS 'finds the messages of a subject';
COMMENT ON INDEX outbox.subject_messages_message IS 'finds what goes with a retired partition';

---------------------------------------------------------------- seals

CREATE FUNCTION outbox.seal_recorded() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_seal_recorded';
COMMENT ON FUNCTION outbox.seal_recorded() IS
'Trigger function: has records of this database come after the seals that a restore or replication brings. Errors: 39P01 when called otherwise. Takes no locks.';

CREATE TABLE outbox.seals (
	seal_no bigint NOT NULL,
	from_at timestamptz NOT NULL,
	to_at timestamptz NOT NULL,
	messages bigint NOT NULL,
	attempts bigint NOT NULL,
	events bigint NOT NULL,
	root bytea NOT NULL,
	parts jsonb NOT NULL,
	previous bytea,
	hash bytea NOT NULL,
	signature bytea,
	key_id text,
	CONSTRAINT seals_pkey PRIMARY KEY (seal_no),
	CONSTRAINT seals_from_at_key UNIQUE (from_at),
	CONSTRAINT seals_to_at_key UNIQUE (to_at),
	CONSTRAINT seals_previous_key UNIQUE NULLS NOT DISTINCT (previous),
	CONSTRAINT seals_window CHECK (seal_no > 0 AND from_at < to_at)
);
COMMENT ON TABLE outbox.seals IS 'The seals: a hash of all that was recorded in a window of time, each over the one before. INSERT-only; outbox.verify_seals compares them with the tables.';
COMMENT ON COLUMN outbox.seals.seal_no IS 'from 1, without gaps';
COMMENT ON COLUMN outbox.seals.from_at IS 'beginning of the window, inclusive: the end of the one before; -infinity for the first';
COMMENT ON COLUMN outbox.seals.to_at IS 'end of the window, exclusive';
COMMENT ON COLUMN outbox.seals.messages IS 'number of messages with a created_at in the window';
COMMENT ON COLUMN outbox.seals.attempts IS 'number of attempts with a created_at in the window';
COMMENT ON COLUMN outbox.seals.events IS 'number of events with an at in the window';
COMMENT ON COLUMN outbox.seals.root IS 'root of the tree of the parts';
COMMENT ON COLUMN outbox.seals.parts IS 'the rows of each partition: table, partition, rows, and the root of their tree';
COMMENT ON COLUMN outbox.seals.previous IS 'hash of the seal before; NULL for the first';
COMMENT ON COLUMN outbox.seals.hash IS 'SHA-256 of seal_no, window, counts, root, previous and key_id: with it all that came before can be proved';
COMMENT ON COLUMN outbox.seals.signature IS 'Ed25519 signature of hash by the key in outbox.seal_key_file; NULL if there was none';
COMMENT ON COLUMN outbox.seals.key_id IS 'first 16 hex digits of SHA-256 of the public key; NULL if it is not signed';
COMMENT ON CONSTRAINT seals_pkey ON outbox.seals IS 'no number twice';
COMMENT ON INDEX outbox.seals_pkey IS 'no number twice';
COMMENT ON CONSTRAINT seals_from_at_key ON outbox.seals IS 'no window twice';
COMMENT ON INDEX outbox.seals_from_at_key IS 'no window twice';
COMMENT ON CONSTRAINT seals_to_at_key ON outbox.seals IS 'finds the seal of a row';
COMMENT ON INDEX outbox.seals_to_at_key IS 'finds the seal of a row';
COMMENT ON CONSTRAINT seals_previous_key ON outbox.seals IS 'the chain has no branches';
COMMENT ON INDEX outbox.seals_previous_key IS 'the chain has no branches';
COMMENT ON CONSTRAINT seals_window ON outbox.seals IS 'windows have a length';

CREATE TABLE outbox.seal_marks (
	at timestamptz NOT NULL,
	next_xid xid8 NOT NULL,
	CONSTRAINT seal_marks_pkey PRIMARY KEY (at)
);
COMMENT ON TABLE outbox.seal_marks IS 'Times at which a window can be closed once all transactions with an id below next_xid have ended. Not in dumps: ids mean nothing in another cluster.';
COMMENT ON COLUMN outbox.seal_marks.at IS 'nothing is recorded with an earlier time by a transaction with an id from next_xid on';
COMMENT ON COLUMN outbox.seal_marks.next_xid IS 'the next transaction id after at was published as the floor of record times';
COMMENT ON CONSTRAINT seal_marks_pkey ON outbox.seal_marks IS 'one mark of a time';
COMMENT ON INDEX outbox.seal_marks_pkey IS 'one mark of a time';

CREATE SEQUENCE outbox.seal_floor AS bigint MINVALUE 0 START 0;
COMMENT ON SEQUENCE outbox.seal_floor IS 'The floor of the times of records, in microseconds since 2000-01-01 00:00 UTC: what is recorded now has no earlier time, whatever the clock does. A sequence, because a rollback does not lower it.';

---------------------------------------------------------------- append-only

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.seals
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.seals ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON outbox.seals IS 'seals never change';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.seals
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.seals ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.seals IS 'the chain is never emptied';
CREATE TRIGGER seal_recorded AFTER INSERT ON outbox.seals
	FOR EACH ROW EXECUTE FUNCTION outbox.seal_recorded();
ALTER TABLE outbox.seals ENABLE ALWAYS TRIGGER seal_recorded;
COMMENT ON TRIGGER seal_recorded ON outbox.seals IS 'what is recorded after a restore or replication belongs to no window that is closed';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.messages
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.messages ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON outbox.messages IS 'cloned to every partition that is attached';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.messages
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.messages ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.messages IS 'the ledger is never emptied';
CREATE TRIGGER append_only_leaf BEFORE UPDATE OR DELETE ON outbox.messages_default
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.messages_default ENABLE ALWAYS TRIGGER append_only_leaf;
COMMENT ON TRIGGER append_only_leaf ON outbox.messages_default IS 'the leaf''s own, kept when it is detached';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.messages_default
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.messages_default ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.messages_default IS 'the ledger is never emptied';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.attempts
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.attempts ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON outbox.attempts IS 'cloned to every partition that is attached';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.attempts
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.attempts ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.attempts IS 'the ledger is never emptied';
CREATE TRIGGER append_only_leaf BEFORE UPDATE OR DELETE ON outbox.attempts_default
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.attempts_default ENABLE ALWAYS TRIGGER append_only_leaf;
COMMENT ON TRIGGER append_only_leaf ON outbox.attempts_default IS 'the leaf''s own, kept when it is detached';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.attempts_default
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.attempts_default ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.attempts_default IS 'the ledger is never emptied';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.events
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON outbox.events IS 'cloned to every partition that is attached';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.events
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.events IS 'the ledger is never emptied';
CREATE TRIGGER append_only_leaf BEFORE UPDATE OR DELETE ON outbox.events_default
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.events_default ENABLE ALWAYS TRIGGER append_only_leaf;
COMMENT ON TRIGGER append_only_leaf ON outbox.events_default IS 'the leaf''s own, kept when it is detached';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.events_default
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.events_default ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.events_default IS 'the ledger is never emptied';

CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.pending
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.pending IS 'emptying pending would lose messages';
CREATE TRIGGER pending_changed AFTER INSERT OR UPDATE OR DELETE ON outbox.pending
	FOR EACH ROW EXECUTE FUNCTION outbox.pending_changed();
ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
CREATE TRIGGER pending_changing BEFORE UPDATE ON outbox.pending
	FOR EACH ROW EXECUTE FUNCTION outbox.pending_changed();
ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changing;
COMMENT ON TRIGGER pending_changing ON outbox.pending IS 'if a statement that changes rows and claims is rolled back, other claims still find the rows';
COMMENT ON TRIGGER pending_changed ON outbox.pending IS 'a message without its row is never delivered: refuses DELETE and another outbox_id; the functions of the outbox do not fire it';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.subjects
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.subjects ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON outbox.subjects IS 'what was protected stays known';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.subjects
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.subjects ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.subjects IS 'what was protected stays known';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.erasures
	FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.erasures ENABLE ALWAYS TRIGGER append_only;
COMMENT ON TRIGGER append_only ON outbox.erasures IS 'an erasure stays proven';
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.erasures
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE outbox.erasures ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only_truncate ON outbox.erasures IS 'an erasure stays proven';

---------------------------------------------------------------- dumps

SELECT pg_catalog.pg_extension_config_dump('outbox.queues', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.messages_default', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.attempts_default', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.events_default', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.pending', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.idempotency_keys', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.key_numbers', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.key_marks', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.replays', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.dead', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.retired_numbers', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.retention', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.subject_hash_key', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.subject_keys', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.subjects', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.erasures', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.subject_messages', '');

SELECT pg_catalog.pg_extension_config_dump('outbox.seals', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.seal_floor', '');

INSERT INTO outbox.queues (queue) VALUES ('default');

---------------------------------------------------------------- producer

CREATE FUNCTION outbox.enqueue(event_type text, payload jsonb DEFAULT NULL,
	queue text DEFAULT 'default', aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	partition_key text DEFAULT NULL, idempotency_key text DEFAULT NULL, event_id uuid DEFAULT NULL,
	headers jsonb DEFAULT '{}', routing_key text DEFAULT NULL, priority integer DEFAULT 0,
	deliver_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
	payload_bytes bytea DEFAULT NULL, content_type text DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, sequence_id bigint, created boolean)
LANGUAGE c VOLATILE ROWS 1 AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox.enqueue IS
$$Enqueues one message in the caller's transaction: rolled back with it, visible and notified with its commit.
event_type: what happened, not empty. payload: any JSON. payload_bytes, content_type: instead of payload any bytes, and what they are. queue: an existing queue. aggregate_type, aggregate_id: the thing it happened to. partition_key: what is kept together; in a numbered queue the message gets the key's next number. idempotency_key: a repeated enqueue with the same queue and aggregate_id returns the first message's ids with created = false. event_id: what consumers deduplicate on, a key of its own within the queue; NULL = outbox_id. An empty partition_key or idempotency_key and the nil UUID are refused: pass NULL for none. "function outbox.enqueue(...) does not exist" (42883) means an argument of another type: cast payload and headers with ::jsonb, aggregate_id and the keys with ::text, event_id with ::uuid, priority and max_attempts with ::integer, payload_bytes with ::bytea. headers: a JSON object. priority: 0 to 15, higher first. deliver_at: not claimed before; NULL = now. max_attempts: this message's ceiling; NULL = the queue's.
Errors: P7004 unknown queue; 22004 NULL event_type, queue, headers or priority; 22023 a value out of range, neither or both of payload and payload_bytes; 25006 read-only transaction.
Locks: waits for an open transaction that uses the same idempotency_key or event_id and, in a numbered queue, the same partition_key; never for other sessions.
Cost: three index entries, one more for each key and for a number; does not grow with the tables.$$;

CREATE FUNCTION outbox.enqueue_batch(queue text, messages jsonb)
RETURNS TABLE (ordinality integer, outbox_id uuid, sequence_id bigint, created boolean)
LANGUAGE c VOLATILE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_enqueue_batch';
COMMENT ON FUNCTION outbox.enqueue_batch IS
$$Enqueues an array of messages, as enqueue would one by one, and answers in input order.
queue: an existing queue. messages: a JSON array of objects; their keys are the argument names of enqueue without queue; JSON null means the argument's default (for payload without payload_bytes: the payload null); payload_bytes is a string in base64; an unknown key is an error. An idempotency key that occurs twice in one array gives one message.
Errors: as enqueue, the CONTEXT naming the element; 22023 when messages is no array of objects or payload_bytes no base64. One bad element and nothing is written.
Locks: as enqueue; keys are taken in one fixed order, idempotency keys first, then partition keys, so that two batches do not deadlock.
Cost: linear in the elements, far below that of as many calls of enqueue.$$;

CREATE FUNCTION outbox.enqueue_and_claim(worker_id text, event_type text, payload jsonb DEFAULT NULL,
	queue text DEFAULT 'default', aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	partition_key text DEFAULT NULL, idempotency_key text DEFAULT NULL, event_id uuid DEFAULT NULL,
	headers jsonb DEFAULT '{}', routing_key text DEFAULT NULL, priority integer DEFAULT 0,
	max_attempts integer DEFAULT NULL, lease interval DEFAULT NULL,
	payload_bytes bytea DEFAULT NULL, content_type text DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, sequence_id bigint, created boolean, lease_token uuid, lease_expires_at timestamptz)
LANGUAGE c VOLATILE ROWS 1 AS 'MODULE_PATHNAME', 'outbox_enqueue_and_claim';
COMMENT ON FUNCTION outbox.enqueue_and_claim IS
$$Optimistic sending: enqueues a message under a lease of worker_id, which sends it after COMMIT has succeeded and then completes it. If the sender dies, the lease expires and any worker takes over.
worker_id: the sender, not empty. lease: how long, from the call; NULL = the queue's. The others as in enqueue. lease_token is NULL on a duplicate and in a paused queue: the message is stored and another will send it.
Errors: as enqueue; 0A000 a queue that has a handler; 42501 unless the caller is a member of both outbox_ingest and outbox_executor; 22023 a lease that is not positive or not finite.
Locks and cost: as enqueue, and one index entry more.$$;

---------------------------------------------------------------- worker

CREATE FUNCTION outbox.claim(worker_id text, batch_size integer DEFAULT 10, lease interval DEFAULT NULL,
	queues text[] DEFAULT NULL, wait interval DEFAULT '0', queue_weights integer[] DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
	partition_key text, sequence_id bigint, idempotency_key text, routing_key text, priority integer,
	payload jsonb, headers jsonb, attempt_count integer, max_attempts integer, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz, payload_bytes bytea, content_type text)
LANGUAGE c VOLATILE ROWS 10 AS 'MODULE_PATHNAME', 'outbox_claim';
COMMENT ON FUNCTION outbox.claim(text, integer, interval, text[], interval, integer[]) IS
$$Leases at most batch_size due messages to worker_id, each under a fresh token, oldest due first within priority within a queue (priority_aging raises the priority with the wait); queues are served in the order given, or by shares.
worker_id: the name of the worker, 1 to 512 bytes. batch_size: at least 1. lease: how long, from now by the wall clock; NULL = each queue's. queues: the queues to look in, at least one; NULL = {default}. wait: how long to wait, at most, until there is something to lease; '0' = not at all. queue_weights: the shares of the queues in batch_size, one number of at least 1 for each element of queues; each queue gets its proportion, rounded by chance, and what a queue does not have is shared by the others; NULL = all of the first queue, then the next.
Each row that the function returns is leased, also one that the calling query drops (WHERE, LIMIT, a join). An expired lease is first recorded in the ledger (ZOMBIE_REQUEUE, or FAILED at the ceiling, which ends the message), then the message is leased again. A message with a ceiling below its attempts ends as FAILED / RETRIES_EXHAUSTED.
Errors: P7004 unknown queue; 0A000 a queue that has a handler; 22004 and 22023 bad arguments; 25001 wait above 0 in an isolation level above READ COMMITTED.
Locks: the rows it leases, until the end of the transaction; never waits for a row. Takes no predicate locks.
Cost: one index descent a queue and priority in use, a few index entries a message; does not grow with the backlog, with scheduled messages or with leases of others.$$;

CREATE PROCEDURE outbox.wait_for_work(max_wait interval, queues text[] DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_wait_for_work';
COMMENT ON PROCEDURE outbox.wait_for_work(interval, text[]) IS
$$Waits until something is claimable, or max_wait is over. Workers that do not LISTEN call it between claims.
max_wait: how long at most. queues: the queues to watch; NULL = {default}, as in claim.
Errors: 25001 in a transaction block, in a function, or after a write; P7004 unknown queue; 0A000 a queue that has a handler; 22004 and 22023 bad arguments; 25006 during recovery.
Locks: none while it waits, and no snapshot: it ends the transaction. Cost: a look when it begins and when it is woken; each 100 ms without a background worker.$$;

CREATE FUNCTION outbox.complete(outbox_id uuid, lease_token uuid, worker_id text, state outbox.attempt_state,
	reference text DEFAULT NULL, response_code text DEFAULT NULL, error_code text DEFAULT NULL, error_message text DEFAULT NULL,
	latency_ms integer DEFAULT NULL, retry_delay interval DEFAULT NULL)
RETURNS TABLE (attempt_no integer, recorded outbox.attempt_state, next_attempt_at timestamptz)
LANGUAGE c VOLATILE ROWS 1 AS 'MODULE_PATHNAME', 'outbox_complete';
COMMENT ON FUNCTION outbox.complete(uuid, uuid, text, outbox.attempt_state, text, text, text, text, integer, interval) IS
$$Reports one attempt: appends exactly one row to the ledger and ends the message (DISPATCHED, FAILED) or reschedules it (RETRYABLE).
outbox_id, lease_token, worker_id: as claim gave them. state: DISPATCHED, FAILED or RETRYABLE. reference, response_code, error_code, error_message: kept in the ledger. latency_ms: milliseconds, not negative. retry_delay: with RETRYABLE only, from now; NULL = the queue's backoff. At the ceiling RETRYABLE is recorded as FAILED, with error_code RETRIES_EXHAUSTED unless one is given.
Errors: P7002 the lease is lost (DETAIL: how); P7001 the ledger has a terminal attempt already; P7003 a state that completion may not record; 22004 and 22023 bad arguments.
Locks: the pending row, until the end of the transaction; a stale token is refused before any lock. Never waits for a producer.
Cost: two or three index entries; does not grow with the tables.$$;

CREATE FUNCTION outbox.complete_batch(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[],
	refs text[] DEFAULT NULL, response_codes text[] DEFAULT NULL, error_codes text[] DEFAULT NULL, error_messages text[] DEFAULT NULL,
	latencies_ms integer[] DEFAULT NULL, retry_delays interval[] DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, attempt_no integer, recorded outbox.attempt_state, next_attempt_at timestamptz, error text)
LANGUAGE c VOLATILE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_complete_batch';
COMMENT ON FUNCTION outbox.complete_batch(text, uuid[], uuid[], outbox.attempt_state[], text[], text[], text[], text[], integer[], interval[]) IS
$$Reports many attempts of one worker. Returns one row for each item, in input order; a bad item does not fail the others.
The arrays are one-dimensional and of one length, element by element as the arguments of complete; an optional array may be NULL as a whole or in its elements.
error: NULL, or the item's SQLSTATE (P7002 lease lost, P7001, P7003, 22004, 22023). If the attempt was recorded under this very token before, attempt_no and recorded show it beside P7002.
Errors of the whole: 22004 NULL worker_id or required array; 22023 lengths or dimensions that differ.
Locks: the pending rows in order of outbox_id, until the end of the transaction; stale tokens are refused before any lock.
Cost: linear in the items.$$;

CREATE FUNCTION outbox.complete_and_claim(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[],
	refs text[] DEFAULT NULL, response_codes text[] DEFAULT NULL, error_codes text[] DEFAULT NULL, error_messages text[] DEFAULT NULL,
	latencies_ms integer[] DEFAULT NULL, retry_delays interval[] DEFAULT NULL,
	batch_size integer DEFAULT 10, lease interval DEFAULT NULL, queues text[] DEFAULT NULL, queue_weights integer[] DEFAULT NULL)
RETURNS TABLE (kind text, outbox_id uuid,
	attempt_no integer, recorded outbox.attempt_state, next_attempt_at timestamptz, error text,
	queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
	partition_key text, sequence_id bigint, idempotency_key text, routing_key text, priority integer,
	payload jsonb, headers jsonb, attempt_count integer, max_attempts integer, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz, payload_bytes bytea, content_type text)
LANGUAGE c VOLATILE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_complete_and_claim';
COMMENT ON FUNCTION outbox.complete_and_claim(text, uuid[], uuid[], outbox.attempt_state[], text[], text[], text[], text[], integer[], interval[], integer, interval, text[], integer[]) IS
$$Reports a batch of attempts and then leases the next batch: complete_batch and claim in one statement, one round trip and one commit.
worker_id: who reports and claims. outbox_ids to retry_delays: as in complete_batch; empty arrays report nothing. batch_size, lease, queues, queue_weights: as in claim; it never waits for work.
kind: completed, a row for each item in input order, with attempt_no, recorded, next_attempt_at and error as complete_batch has them; then claimed, a row for each lease, with the columns of claim. A message that this call reschedules without delay is due, and may be among the claimed.
Errors of the whole, before anything is written: P7004 unknown queue; 22004 and 22023 bad arguments.
Locks: as complete_batch, then as claim. Cost: that of both, less a call, a commit and the opening of the tables.$$;

CREATE FUNCTION outbox.renew(worker_id text, outbox_ids uuid[], lease_tokens uuid[], lease interval DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, lease_expires_at timestamptz, error text)
LANGUAGE c VOLATILE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_renew';
COMMENT ON FUNCTION outbox.renew(text, uuid[], uuid[], interval) IS
$$Extends leases: each to the later of its expiry and now + lease. One row an item, in input order.
lease: NULL = the queue's. error: NULL, P7002 (lost), 55P03 (another transaction holds the row), 22004.
Errors of the whole: 22004, 22023 bad arguments. Locks: the rows it renews; never waits. Cost: linear in the items.$$;

CREATE FUNCTION outbox.release(worker_id text, outbox_ids uuid[], lease_tokens uuid[], delay interval DEFAULT '0')
RETURNS TABLE (outbox_id uuid, next_attempt_at timestamptz, error text)
LANGUAGE c VOLATILE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_release';
COMMENT ON FUNCTION outbox.release(text, uuid[], uuid[], interval) IS
$$Returns leases without a try: nothing is appended, attempt_count stays, release_count grows by one, the message is due at now + delay. One row an item, in input order.
A release beyond the queue's max_releases counts as a try: it appends RETRYABLE / RELEASES_EXHAUSTED, release_count starts again at 0, and the message is due after the queue's backoff, or after delay if that is longer. At the ceiling of attempts it appends FAILED / RELEASES_EXHAUSTED, which ends the message.
delay: not negative. next_attempt_at: when it is due; NULL without an error = it has ended. error: NULL, P7002 (lost), 55P03 (another transaction holds the row), 22004; P7001, 55000 as complete_batch if the release counts as a try.
In a fifo queue it takes the leases of messages behind these in their key, too.
Errors of the whole: 22004, 22023 bad arguments; 55P03 another transaction holds such a message. Locks: the rows it releases; never waits for a row. Cost: linear in the items.$$;

CREATE FUNCTION outbox.repair_expired_leases(batch_size integer DEFAULT 100, worker_id text DEFAULT 'outbox repair', queues text[] DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, attempt_no integer, state outbox.attempt_state, lost_by text)
LANGUAGE c VOLATILE ROWS 10 AS 'MODULE_PATHNAME', 'outbox_repair_expired_leases';
COMMENT ON FUNCTION outbox.repair_expired_leases(integer, text, text[]) IS
$$Takes back leases that have expired: appends ZOMBIE_REQUEUE (or FAILED / LEASE_EXPIRED at the ceiling, which ends the message) and makes the message due after the queue's repair_delay.
batch_size: at most so many, at least 1. worker_id: who repairs, kept as recorded_by. queues: NULL = all. A row that cannot be repaired is reported as a WARNING and stops no other.
Errors: P7004 unknown queue; 22004 and 22023 bad arguments. Locks: the rows it repairs; skips rows that others hold. Cost: linear in the expired leases it meets.$$;

---------------------------------------------------------------- operator

CREATE FUNCTION outbox.create_queue(queue text, max_attempts integer DEFAULT 20, lease interval DEFAULT '30 seconds',
	backoff_base interval DEFAULT '1 second', backoff_cap interval DEFAULT '15 minutes', backoff_jitter real DEFAULT 0.2,
	repair_delay interval DEFAULT '1 second', ordering text DEFAULT 'none', on_dead_head text DEFAULT 'continue',
	validator text DEFAULT NULL, paused boolean DEFAULT false, max_in_flight integer DEFAULT NULL, payload_kind text DEFAULT 'object',
	max_releases integer DEFAULT NULL, rate_limit double precision DEFAULT NULL, rate_burst integer DEFAULT NULL,
	max_in_flight_per_key integer DEFAULT NULL, fair_by text DEFAULT NULL, priority_aging interval DEFAULT NULL,
	handler text DEFAULT NULL, handler_timeout interval DEFAULT '30 seconds', dead_letter_queue text DEFAULT NULL,
	protect jsonb DEFAULT NULL, reveal_on_claim boolean DEFAULT false,
	audit_events boolean DEFAULT false)
RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_create_queue';
COMMENT ON FUNCTION outbox.create_queue IS
$$Makes a queue. The arguments are the columns of outbox.queues. queue: 1 to 63 bytes. max_attempts, max_releases, max_in_flight, rate_limit, max_in_flight_per_key: NULL = no limit. rate_burst: NULL = the messages of one second, at least 1; without rate_limit it has no effect. fair_by: NULL or the empty string = not fair. priority_aging: NULL or 0 = priorities are strict. validator: the qualified name of a function f(payload jsonb, headers jsonb, routing_key text) RETURNS text that checks each enqueue into the queue, but not a replay (payload is NULL where the message has payload_bytes; a STRICT function refuses such messages): what it returns refuses the message (22023) and is the DETAIL. It runs as its owner in a security-restricted context, with search_path pg_catalog, pg_temp, on what producers send: so the caller must be a member of its owner, and after a change of owner it must be set again. handler: the qualified name of a function f(message outbox.claimed) RETURNS void; NULL or the empty string = none. Background processes (outbox.handler_workers), or maintain() where no background worker is, claim the messages and call it for each, in one transaction with the outcome: DISPATCHED if it returns; an error undoes its work and is recorded as RETRYABLE with its SQLSTATE, as FAILED if that begins with P8. It runs as its owner and cannot change role, in READ COMMITTED, with search_path pg_catalog, pg_temp, for handler_timeout at most; the caller must be a member of its owner, and after a change of owner it must be set again. No other worker may claim from the queue. dead_letter_queue: another queue, without one itself; NULL or the empty string = none. The transaction that ends a message of this queue as FAILED, in whatever way, enqueues a message outbox.dead_letter into it: payload outbox_id, queue, event_id, event_type, aggregate_type, aggregate_id, attempts, error_code, error_message; the headers of the dead message; its outbox_id as idempotency_key; no partition_key. No validator is asked. protect: {"subject": "$.customer_id", "fields": ["$.email"]}: what is enqueued has these fields encrypted as by outbox.protect, for the subject at that place; NULL or {} = none. A payload that has such a field and no subject is refused (22023), and so is payload_bytes. reveal_on_claim: true = claims and the handler get protected fields in plain text; only a member of outbox_privacy may set it.
Errors: 42710 it exists; P7004 unknown dead_letter_queue; 22004 and 22023 bad arguments; 42883 and 42501 a validator or handler that does not exist, or that the caller does not own; 42501 reveal_on_claim, a validator beside protect, or a handler beside reveal_on_claim, by who is no member of outbox_privacy. Locks: a dead_letter_queue cannot be dropped until the end of the transaction, and others that name one wait for it. Cost: one row.$$;

CREATE FUNCTION outbox.alter_queue(queue text, max_attempts integer DEFAULT -1, lease interval DEFAULT NULL,
	backoff_base interval DEFAULT NULL, backoff_cap interval DEFAULT NULL, backoff_jitter real DEFAULT NULL,
	repair_delay interval DEFAULT NULL, ordering text DEFAULT NULL, on_dead_head text DEFAULT NULL,
	validator text DEFAULT NULL, paused boolean DEFAULT NULL, max_in_flight integer DEFAULT -1, payload_kind text DEFAULT NULL,
	max_releases integer DEFAULT -1, rate_limit double precision DEFAULT -1, rate_burst integer DEFAULT -1,
	max_in_flight_per_key integer DEFAULT -1, fair_by text DEFAULT NULL, priority_aging interval DEFAULT NULL,
	handler text DEFAULT NULL, handler_timeout interval DEFAULT NULL, dead_letter_queue text DEFAULT NULL,
	protect jsonb DEFAULT NULL, reveal_on_claim boolean DEFAULT NULL,
	audit_events boolean DEFAULT NULL)
RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_alter_queue';
COMMENT ON FUNCTION outbox.alter_queue IS
$$Changes a queue's settings from the next call of any function on. NULL keeps a setting; max_attempts, max_releases, max_in_flight, rate_limit, rate_burst, max_in_flight_per_key: -1 keeps, NULL = no limit or the default. validator, fair_by, handler, dead_letter_queue: the empty string removes it. priority_aging: 0 removes it. protect: {} removes it; only a member of outbox_privacy may change or remove it once it is set, or set reveal_on_claim. ordering to and from fifo, fair_by, and max_in_flight_per_key from and to NULL: only while the queue holds no pending message, committed or not yet. on_dead_head: keys that are blocked stay so.
Errors: P7004 unknown queue; 55006 one of these while messages are pending; 22004, 22023, 42883 and 42501 as create_queue. Locks: waits for another change of the same queue; dead_letter_queue as create_queue. Cost: one row.$$;

CREATE FUNCTION outbox.drop_queue(queue text)
RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_drop_queue';
COMMENT ON FUNCTION outbox.drop_queue(text) IS
$$Removes a queue that holds no pending message. Its messages and attempts stay, and its keys and numbers are still remembered.
Errors: P7004 unknown queue; 55006 messages are pending, committed or not yet; 2BP01 it is a dead_letter_queue. Locks: producers of this queue wait until the end of the transaction. Cost: one row.$$;

CREATE FUNCTION outbox.take_number(queue text, partition_key text) RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_take_number';
COMMENT ON FUNCTION outbox.take_number(text, text) IS
$$Takes the next number of a key, for something that is not in the outbox. No message gets this number; the next message gets the one after it.
queue: one that numbers. partition_key: the key, as in enqueue; not empty.
Errors: P7004 unknown queue; 55000 the queue does not number; 22004; 22023 an empty partition_key. Locks: waits for an open transaction that numbered last for the key, and makes the next one wait, until the end of the transaction. Cost: two rows.$$;

CREATE FUNCTION outbox.pause(queue text) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_pause';
COMMENT ON FUNCTION outbox.pause(text) IS
'Stops claims from a queue; existing leases may still be completed, and producers continue. Errors: P7004, 22004. Locks: waits for another change of the same queue. Cost: one row.';
CREATE FUNCTION outbox.resume(queue text) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_resume';
COMMENT ON FUNCTION outbox.resume(text) IS
'Lets a paused queue be claimed again. Errors: P7004, 22004. Locks: waits for another change of the same queue. Cost: one row.';

CREATE FUNCTION outbox.cancel(outbox_id uuid, reason text, force boolean DEFAULT false)
RETURNS integer LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel';
COMMENT ON FUNCTION outbox.cancel(uuid, text, boolean) IS
$$Ends a pending message: appends FAILED / CANCELLED with the reason and returns its attempt_no. The message is a dead letter then.
reason: kept as error_message, not empty. force: also when a worker holds a live lease, who then gets P7002.
Errors: P7005 not pending; 55006 a live lease and no force; P7001; 22004 and 22023 bad arguments. Locks: waits for the pending row. Cost: as complete.$$;

CREATE FUNCTION outbox.cancel_batch(outbox_ids uuid[], reason text, force boolean DEFAULT false)
RETURNS TABLE (outbox_id uuid, attempt_no integer, error text)
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel_batch';
COMMENT ON FUNCTION outbox.cancel_batch(uuid[], text, boolean) IS
$$cancel() for many messages, item by item, in one transaction: one row for each, in their order. error: NULL, or an SQLSTATE: P7005 not pending, 55006 a live lease and no force, 55P03 another transaction holds the row, and those of cancel().
outbox_ids: at most outbox.max_batch. reason, force: as in cancel.
Errors of the whole call: 22004 and 22023 bad arguments. Locks: the pending rows; it waits for none. Cost: that of cancel() for each.$$;

CREATE FUNCTION outbox.unblock(queue text, partition_key text)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_unblock';
COMMENT ON FUNCTION outbox.unblock(text, text) IS
$$Lets a key of a fifo queue go on that its dead head blocks (on_dead_head = 'block'), and returns that message. It stays a dead letter. To deliver it before those behind it, replay it instead.
queue, partition_key: as shown in outbox.blocked_keys.
Errors: P7004 unknown queue; P7005 no dead head blocks the key; 22004; 22023 an empty partition_key. Locks: waits for another unblock or a replay that ends the block. Cost: as complete.$$;

CREATE FUNCTION outbox.break_lease(outbox_id uuid, reason text)
RETURNS integer LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_break_lease';
COMMENT ON FUNCTION outbox.break_lease(uuid, text) IS
$$Takes a lease from the worker that holds it, as if it had expired now and were repaired: appends ZOMBIE_REQUEUE / LEASE_BROKEN with the reason and makes the message due after the queue's repair_delay, or appends FAILED / LEASE_BROKEN at the ceiling, which ends it. Returns the attempt_no. The worker gets P7002 when it reports, but may have delivered already.
reason: kept as error_message, not empty.
Errors: P7005 not pending; 55000 not leased; P7001; 22004 and 22023 bad arguments. Locks: waits for the pending row. Cost: as complete.$$;

CREATE FUNCTION outbox.reschedule(outbox_id uuid, next_attempt_at timestamptz DEFAULT NULL, priority integer DEFAULT NULL)
RETURNS timestamptz LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_reschedule';
COMMENT ON FUNCTION outbox.reschedule(uuid, timestamptz, integer) IS
$$Makes a pending message that no worker holds due at another time, or gives it another priority, and returns when it is due. The ledger gets no row.
next_attempt_at: not claimed before, now() = at once, never before it was enqueued, or before now if the clock was set back since; NULL = as it is. priority: 0 to 15; NULL = as it is.
Errors: P7005 not pending; 55006 leased; 22004 and 22023 bad arguments. Locks: waits for the pending row. Cost: one row and two index entries.$$;

CREATE FUNCTION outbox.replay(outbox_id uuid, deliver_at timestamptz DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_replay';
COMMENT ON FUNCTION outbox.replay(uuid, timestamptz) IS
$$Makes a dead letter a new message, at most once, and returns the new outbox_id: same event_id, payload or payload_bytes, content_type, headers and routing, not the idempotency key; replay_of names the dead letter. In a numbered or fifo queue it gets its key's next number; but if the dead letter blocks its key, its own number and its place.
deliver_at: not claimed before; NULL = now.
Errors: P7005 no dead letter, or replayed before (DETAIL: as what); P7004 its queue is gone; 22004. Locks: waits for an open replay of the same message. Cost: as enqueue.$$;

CREATE FUNCTION outbox.replay_batch(outbox_ids uuid[], deliver_at timestamptz DEFAULT NULL)
RETURNS TABLE (outbox_id uuid, replay_id uuid, error text)
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_replay_batch';
COMMENT ON FUNCTION outbox.replay_batch(uuid[], timestamptz) IS
$$replay() for many dead letters, item by item, in one transaction: one row for each, in their order. error: NULL, or the SQLSTATE that replay() raises.
outbox_ids: at most outbox.max_batch. deliver_at: as in replay.
Errors of the whole call: 22004 and 22023 bad arguments. Locks: as replay, until the end of the transaction: in a numbered queue the producers of its keys wait for it. It waits for none: what another transaction holds is 55P03. Cost: that of replay() for each.$$;

CREATE FUNCTION outbox.lost_messages()
RETURNS TABLE (outbox_id uuid, queue text, event_type text, created_at timestamptz, attempts integer)
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_lost_messages';
COMMENT ON FUNCTION outbox.lost_messages() IS
$$Messages that have not ended and are not pending either, so that they are never delivered: their rows in outbox.pending were deleted with the triggers disabled, or not by SQL. attempts: ledger rows they have. outbox.restore_pending() puts them back; outbox.check(deep => true) counts them.
No arguments. Errors: 42501 unless the caller may read the tables. No locks but those of reading. Cost: reads the primary keys of all messages, and of all terminal attempts.$$;

CREATE FUNCTION outbox.restore_pending() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_restore_pending';
COMMENT ON FUNCTION outbox.restore_pending() IS
$$Makes the messages that outbox.lost_messages() shows pending again, due now, and returns how many. Messages that are pending or have ended do not change, so you may call it again. Messages of a queue that does not exist are left out: make the queue first.
Errors: 25001 in a REPEATABLE READ or SERIALIZABLE transaction; 25006. Locks: SHARE UPDATE EXCLUSIVE on outbox.pending until the end of the transaction: another call, and VACUUM, wait or are waited for; claims and producers are not. drop_queue is refused meanwhile. Cost: that of lost_messages(), and three index entries a message.$$;

CREATE FUNCTION outbox.acknowledge_dead(outbox_id uuid, reason text) RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_acknowledge_dead';
COMMENT ON FUNCTION outbox.acknowledge_dead(uuid, text) IS
$$Acknowledges a dead letter: it no longer counts as dead and holds no partition. It can still be replayed.
outbox_id: a dead letter. reason: what was decided, not empty; shown in outbox.dead_letters. Returns true, or false if it was acknowledged before.
Errors: P7005 no dead letter, or replayed; 22004, 22023 NULL or empty arguments. Locks: waits for another acknowledgement or a replay of the same message. Cost: one row.$$;

CREATE FUNCTION outbox.backoff(queue text, attempt_no integer, outbox_id uuid DEFAULT NULL)
RETURNS interval LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_backoff';
COMMENT ON FUNCTION outbox.backoff(text, integer, uuid) IS
$$The delay after attempt attempt_no in a queue: least(backoff_cap, backoff_base * 2^(attempt_no-1)), less jitter when outbox_id is given.
Errors: P7004, 22004, 22023 attempt_no below 1. Takes no row locks; one row read.$$;

CREATE FUNCTION outbox.maintain()
RETURNS TABLE (action text, object text, detail text)
LANGUAGE c VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
SET default_table_access_method = 'heap' SET default_tablespace = ''
AS 'MODULE_PATHNAME', 'outbox_maintain';
COMMENT ON FUNCTION outbox.maintain() IS
$$One pass of upkeep for servers without a background worker: repairs expired leases, makes partitions ahead (outbox.partition_interval, default 1 week), retires pairs of partitions all of whose messages ended longer ago than set_retention says, deletes keys older than outbox.idempotency_window, notifies the queues that have claimable messages, and handles up to 100 messages of queues that have a handler. Returns what it did, and what it left for later because it could not get a lock within 50 ms.
Errors: none but those of the server. Locks: ACCESS EXCLUSIVE on the DEFAULT partitions while it attaches new ones, and on messages, attempts and the partitions it retires, until the end of the transaction: call it in a READ COMMITTED transaction of its own (in a stricter one it leaves old data alone; in a SERIALIZABLE one the attaching takes predicate locks). Cost: attaching reads the DEFAULT partitions once, retiring the pair it retires.$$;

CREATE FUNCTION outbox.set_retention(keep interval, dead_letters interval DEFAULT NULL, archive_schema text DEFAULT NULL)
RETURNS void LANGUAGE c VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_set_retention';
COMMENT ON FUNCTION outbox.set_retention(interval, interval, text) IS
$$Sets how long this database keeps old data, all of it at once; the table outbox.retention shows it. Upkeep acts on it within a minute.
keep: pairs of partitions are retired when the last of their messages ended that long ago; NULL = never. dead_letters: age until which a dead letter that was not replayed keeps its pair; NULL = without limit. archive_schema: where retired partitions go; NULL = they are dropped. Intervals of 1 hour to 3653 days, without months and years.
Errors: 22023 bad arguments; 25006 read-only transaction. Locks and cost: one row.$$;

CREATE FUNCTION outbox.seal() RETURNS SETOF outbox.seals
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_seal';
COMMENT ON FUNCTION outbox.seal() IS
$$Seals what was recorded since the last seal, up to the time at which every transaction that could have recorded something earlier has ended. Returns the seal, or no row if nothing can be closed yet: then call it again later. With outbox.seal_interval a background process does so.
Errors: 55000 in a transaction that is not READ COMMITTED, while a restore or a subscription fills the tables, or if outbox.seal_key_file is set and there is no such file, or no usable key in it; 42501 if it may not be read, or others may read it; 58030 if it cannot be read; 25006 read-only transaction. Locks: one sealer at a time, until the end of the transaction; partitions against DDL. Blocks no other function. Cost: reads the rows of the window by a BRIN index on their time, and partitions without one as a whole.$$;

CREATE FUNCTION outbox.verify_seals(from_seal bigint DEFAULT NULL, to_seal bigint DEFAULT NULL)
RETURNS TABLE (seal_no bigint, ok boolean, problem text)
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_verify_seals';
COMMENT ON FUNCTION outbox.verify_seals(bigint, bigint) IS
$$Compares seals with the tables: whether the chain is whole, and rows were changed, added or removed since. One row for each seal that is as it was, and one for each problem.
from_seal, to_seal: the range; NULL = from the first, to the last. Errors: 22023 from_seal below 1 or above to_seal; 55000 in a transaction that is not READ COMMITTED. It reports what it finds as a problem, not as an error, also a page or a file of outbox.seal_key_file that cannot be read. If that setting names a file, each seal, or a later one, must have a signature by a key in it. Locks: partitions against DDL. Works on a standby. Cost: reads each row of the range once; pg_stat_activity says how far it is.$$;

CREATE FUNCTION outbox.prove(outbox_id uuid) RETURNS jsonb
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_prove';
COMMENT ON FUNCTION outbox.prove(uuid) IS
$$All that a third party needs to check a message and its attempts against the hash of one seal: their contents, their paths, and the seals. docs/seal-format.md describes it; outbox-verify checks it.
outbox_id: the message. A row that is not sealed yet has seal_no null. Errors: 22004 NULL; 22023 no such message; XX001 what was sealed was changed; 54000 the proof would be longer than a jsonb can be; 55000 in a transaction that is not READ COMMITTED. Locks: partitions against DDL. Works on a standby. Cost: for each row, the rows of its window in its partition.$$;

CREATE FUNCTION outbox.export_seals(from_seal bigint DEFAULT NULL, to_seal bigint DEFAULT NULL) RETURNS SETOF jsonb
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_export_seals';
COMMENT ON FUNCTION outbox.export_seals(bigint, bigint) IS
$$The seals as docs/seal-format.md describes them, one in each row, in their order: to be kept where no administrator of this database reaches, and checked by outbox-verify.
from_seal, to_seal: the range; NULL = from the first, to the last. Errors: 22023 from_seal below 1 or above to_seal; 55000 in a transaction that is not READ COMMITTED. No locks but those of reading. Works on a standby.$$;

CREATE FUNCTION outbox.seal_leaves(seal_no bigint)
RETURNS TABLE ("table" text, partition text, id uuid, attempt_no integer, leaf bytea)
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_seal_leaves';
COMMENT ON FUNCTION outbox.seal_leaves(bigint) IS
$$The hash of each row in the window of a seal, as the tables have it now. Compared with the rows that were exported earlier it tells which row was changed.
seal_no: the seal. Errors: 22004 NULL; 22023 no such seal; 55000 in a transaction that is not READ COMMITTED. Locks: partitions against DDL. Works on a standby. Cost: reads the rows of the window.$$;

CREATE FUNCTION outbox.state_diagram() RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'outbox_state_diagram';
COMMENT ON FUNCTION outbox.state_diagram() IS
'The state machine as Graphviz DOT, written from the table of transitions that the functions themselves follow. No errors, no locks, constant cost.';

---------------------------------------------------------------- audit

CREATE FUNCTION outbox.record_event(event text, queue text DEFAULT NULL, outbox_ids uuid[] DEFAULT NULL, detail jsonb DEFAULT '{}')
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_record_event';
COMMENT ON FUNCTION outbox.record_event(text, text, uuid[], jsonb) IS
$$Of functions of the extension: writes an audit event and returns its event_id. No role may call it but the owner.
event: what happened, one of those in docs/audit.md. queue: NULL = it concerns no single queue. outbox_ids: the messages; NULL = none. detail: a JSON object, into which application_name and client_addr are put.
Errors: 22004 NULL event or detail, or a NULL in outbox_ids; 22023 an unknown event, or a detail that is not an object; 25006 read-only transaction. Locks: none that conflict with those of other functions. Cost: one row and one index entry.$$;

-- An id of a message begins with its time. Its events have later ids, unless the clock was set back by more than an hour.
CREATE FUNCTION outbox.message_events(outbox_id uuid, until timestamptz DEFAULT NULL)
RETURNS TABLE (event_id uuid, event text, at timestamptz, queue text, worker_id text, actor text, attempt_no integer, lease_expires_at timestamptz, detail jsonb)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT e.event_id, e.event, e.at, e.queue, e.worker_id, e.actor, e.attempt_nos[array_position(e.outbox_ids, message_events.outbox_id)],
		e.lease_expires_at, e.detail
	FROM outbox.events e
	WHERE e.event_id >= (lpad(to_hex(greatest(('x' || left(replace(message_events.outbox_id::text, '-', ''), 12))::bit(48)::bigint - 3600000, 0)), 12, '0') || repeat('0', 20))::uuid
		AND e.event_id <= (coalesce(lpad(to_hex((extract(epoch FROM message_events.until) * 1000)::bigint + 3600000), 12, '0'), repeat('f', 12)) || repeat('f', 20))::uuid
		AND (message_events.until IS NULL OR e.at <= message_events.until)
		AND e.outbox_ids @> ARRAY[message_events.outbox_id]
	ORDER BY e.event_id;
END;
COMMENT ON FUNCTION outbox.message_events(uuid, timestamptz) IS
$$The audit events of one message, in order of time. attempt_no is that of the message in the event.
outbox_id: the message; NULL = no row. until: the last time; NULL = to now. No errors; no locks but those of reading. Cost: reads the audit events from an hour before the message was enqueued to an hour after until, by a GIN index on outbox_ids in partitions to which you have added one.$$;

---------------------------------------------------------------- views

CREATE VIEW outbox.sequences AS
	SELECT queue, partition_key, CASE WHEN upto < 9223372036854775807 THEN upto + 1 END AS next_sequence_id
	FROM outbox.key_numbers
	OFFSET 0;	-- which makes it a view that cannot be written through
COMMENT ON VIEW outbox.sequences IS 'The next number of each (queue, partition_key) of numbered queues. Reads every key.';
COMMENT ON COLUMN outbox.sequences.queue IS 'the queue';
COMMENT ON COLUMN outbox.sequences.partition_key IS 'the partition key';
COMMENT ON COLUMN outbox.sequences.next_sequence_id IS 'the number that the next message will carry; NULL = there is none left';

CREATE FUNCTION outbox.message_facts(outbox_id uuid, OUT event_id uuid, OUT event_type text, OUT aggregate_type text,
	OUT aggregate_id text, OUT partition_key text, OUT sequence_id bigint, OUT routing_key text, OUT replay_of uuid, OUT created_at timestamptz,
	OUT queue text)
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED COST 1 AS 'MODULE_PATHNAME', 'outbox_message';
COMMENT ON FUNCTION outbox.message_facts(uuid) IS
$$The columns of outbox.messages of these names, of one message, but not its payload; NULL when there is none. The views call it.
outbox_id: the message. Errors: 55000 its partition is missing or lacks its primary key. Locks: ACCESS SHARE on the one partition. Cost: one look-up, however many partitions there are.$$;

CREATE FUNCTION outbox.message_body(outbox_id uuid, OUT payload jsonb, OUT payload_bytes bytea, OUT content_type text, OUT headers jsonb)
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED COST 1 AS 'MODULE_PATHNAME', 'outbox_message';
COMMENT ON FUNCTION outbox.message_body(uuid) IS
$$Payload, as JSON or bytes, and headers of one message; NULL when there is none. The views call it.
outbox_id: the message. Errors and locks as outbox.message_facts. Cost: one look-up, and reading the payload.$$;

CREATE FUNCTION outbox.last_attempt(outbox_id uuid, OUT attempt_no integer, OUT state outbox.attempt_state, OUT worker_id text,
	OUT response_code text, OUT error_code text, OUT error_message text, OUT recorded_by text, OUT created_at timestamptz)
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED COST 1 AS 'MODULE_PATHNAME', 'outbox_last_attempt';
COMMENT ON FUNCTION outbox.last_attempt(uuid) IS
$$The columns of outbox.attempts of these names, of the last attempt of one message; NULL when there is none. The views call it.
outbox_id: the message. Errors and locks as outbox.message_facts. Cost: one look-up.$$;

-- In this view and the next, clock_timestamp() keeps the planner from merging the inner query into the outer one: each
-- function is called once a row if one of its columns is asked for, and not at all if none is.
CREATE VIEW outbox.dead_letters AS
	SELECT d.outbox_id, d.queue, (d.m).event_id, (d.m).event_type, (d.m).aggregate_type, (d.m).aggregate_id, (d.m).partition_key,
		(d.m).sequence_id, (d.m).created_at, d.died_at, (d.a).error_code, (d.a).error_message, (d.a).response_code,
		(d.a).attempt_no AS attempts, (d.a).worker_id, (d.a).recorded_by, (d.b).payload, (d.b).headers, (d.m).replay_of, (d.b).payload_bytes, (d.b).content_type,
		d.acknowledged_at, d.acknowledged_by, d.reason
	FROM (
		SELECT d.outbox_id, d.queue, d.died_at, d.acknowledged_at, d.acknowledged_by, d.reason,
			outbox.message_facts(d.outbox_id) AS m, outbox.message_body(d.outbox_id) AS b, outbox.last_attempt(d.outbox_id) AS a,
			pg_catalog.clock_timestamp() AS now
		FROM outbox.dead d) d;
COMMENT ON VIEW outbox.dead_letters IS 'Messages that ended as FAILED and were not replayed. Reads outbox.dead, and for each row that it shows its message and its last attempt, as far as their columns are asked for: delivered history and the number of partitions cost nothing.';
COMMENT ON COLUMN outbox.dead_letters.outbox_id IS 'the message';
COMMENT ON COLUMN outbox.dead_letters.queue IS 'its queue';
COMMENT ON COLUMN outbox.dead_letters.event_id IS 'the id on which consumers deduplicate';
COMMENT ON COLUMN outbox.dead_letters.event_type IS 'what happened';
COMMENT ON COLUMN outbox.dead_letters.aggregate_type IS 'kind of the thing it happened to';
COMMENT ON COLUMN outbox.dead_letters.aggregate_id IS 'the thing it happened to';
COMMENT ON COLUMN outbox.dead_letters.partition_key IS 'its partition key';
COMMENT ON COLUMN outbox.dead_letters.sequence_id IS 'its number, or NULL';
COMMENT ON COLUMN outbox.dead_letters.created_at IS 'when it was enqueued';
COMMENT ON COLUMN outbox.dead_letters.died_at IS 'when its terminal attempt was written';
COMMENT ON COLUMN outbox.dead_letters.error_code IS 'why: the worker''s code, or RETRIES_EXHAUSTED, RELEASES_EXHAUSTED, LEASE_EXPIRED, LEASE_BROKEN, CANCELLED';
COMMENT ON COLUMN outbox.dead_letters.error_message IS 'why, in words';
COMMENT ON COLUMN outbox.dead_letters.response_code IS 'the receiver''s last answer';
COMMENT ON COLUMN outbox.dead_letters.attempts IS 'ledger rows it has';
COMMENT ON COLUMN outbox.dead_letters.worker_id IS 'who held the last lease';
COMMENT ON COLUMN outbox.dead_letters.recorded_by IS 'who wrote the terminal row';
COMMENT ON COLUMN outbox.dead_letters.payload IS 'the event; NULL = it is payload_bytes';
COMMENT ON COLUMN outbox.dead_letters.headers IS 'its headers';
COMMENT ON COLUMN outbox.dead_letters.replay_of IS 'the dead letter that this one had replayed';
COMMENT ON COLUMN outbox.dead_letters.payload_bytes IS 'the event; NULL = it is payload';
COMMENT ON COLUMN outbox.dead_letters.content_type IS 'the type of the payload';
COMMENT ON COLUMN outbox.dead_letters.acknowledged_at IS 'when acknowledge_dead was called for it; NULL = it waits for a decision';
COMMENT ON COLUMN outbox.dead_letters.acknowledged_by IS 'the role that called';
COMMENT ON COLUMN outbox.dead_letters.reason IS 'the reason that the caller gave';

CREATE VIEW outbox.operational_status AS
	SELECT p.outbox_id, p.queue, p.priority, p.partition_key, p.sequence_id,
		CASE
			WHEN p.lease_expires_at > p.now THEN 'leased'
			WHEN p.lease_expires_at IS NOT NULL THEN 'expired'
			WHEN p.held_back THEN 'waiting'
			WHEN p.next_attempt_at > p.now THEN 'scheduled'
			ELSE 'due'
		END AS state,
		p.attempt_count, p.max_attempts, p.release_count, p.next_attempt_at, p.created_at,
		p.claimed_by, p.claimed_at, p.lease_expires_at,
		CASE WHEN pg_catalog.isfinite(p.claimed_at) THEN extract(epoch FROM p.now - p.claimed_at)::double precision END AS lease_age_seconds,
		CASE WHEN pg_catalog.isfinite(p.next_attempt_at) THEN p.next_attempt_at - p.now END AS time_to_due,
		(p.a).attempt_no AS last_attempt_no, (p.a).state AS last_attempt_state,
		(p.a).error_code AS last_error_code, (p.a).error_message AS last_error_message, (p.a).created_at AS last_attempt_at
	FROM (
		SELECT p.outbox_id, p.queue, p.priority, p.partition_key, p.sequence_id, p.attempt_count, p.max_attempts, p.release_count,
			p.next_attempt_at, p.created_at, p.claimed_by, p.claimed_at, p.lease_expires_at, p.held_back, pg_catalog.clock_timestamp() AS now,
			outbox.last_attempt(p.outbox_id) AS a
		FROM outbox.pending p) p;
COMMENT ON VIEW outbox.operational_status IS 'One row for each pending message: derived state (due, scheduled, leased, expired, waiting), its lease, its schedule and its last attempt. Costs one look-up a row read if a column of the last attempt is asked for: filter it.';
COMMENT ON COLUMN outbox.operational_status.outbox_id IS 'the message';
COMMENT ON COLUMN outbox.operational_status.queue IS 'its queue';
COMMENT ON COLUMN outbox.operational_status.priority IS '0 to 15, higher first';
COMMENT ON COLUMN outbox.operational_status.partition_key IS 'its partition key';
COMMENT ON COLUMN outbox.operational_status.sequence_id IS 'its number, or NULL';
COMMENT ON COLUMN outbox.operational_status.state IS 'due, scheduled, leased or expired, by the wall clock';
COMMENT ON COLUMN outbox.operational_status.attempt_count IS 'attempts in the ledger, as cached';
COMMENT ON COLUMN outbox.operational_status.max_attempts IS 'ceiling of this message; NULL = the queue''s';
COMMENT ON COLUMN outbox.operational_status.release_count IS 'how often it was released untried, since a release last counted as a try';
COMMENT ON COLUMN outbox.operational_status.next_attempt_at IS 'not claimed before';
COMMENT ON COLUMN outbox.operational_status.created_at IS 'when it was enqueued';
COMMENT ON COLUMN outbox.operational_status.claimed_by IS 'the worker that holds it';
COMMENT ON COLUMN outbox.operational_status.claimed_at IS 'since when';
COMMENT ON COLUMN outbox.operational_status.lease_expires_at IS 'until when';
COMMENT ON COLUMN outbox.operational_status.lease_age_seconds IS 'seconds since it was leased';
COMMENT ON COLUMN outbox.operational_status.time_to_due IS 'time until next_attempt_at; negative if that has passed';
COMMENT ON COLUMN outbox.operational_status.last_attempt_no IS 'number of its last attempt';
COMMENT ON COLUMN outbox.operational_status.last_attempt_state IS 'how that ended';
COMMENT ON COLUMN outbox.operational_status.last_error_code IS 'with which code';
COMMENT ON COLUMN outbox.operational_status.last_error_message IS 'with which message';
COMMENT ON COLUMN outbox.operational_status.last_attempt_at IS 'when it was recorded';

CREATE FUNCTION outbox.queue_status(queue text)
RETURNS TABLE (pending_count bigint, due_unleased_count bigint, leased_count bigint, expired_lease_count bigint,
	scheduled_count bigint, waiting_count bigint, dead_count bigint, oldest_due_age_seconds double precision,
	oldest_pending_age_seconds double precision, counts text, counted_at timestamptz)
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED ROWS 1 AS 'MODULE_PATHNAME', 'outbox_queue_status';
COMMENT ON FUNCTION outbox.queue_status(text) IS
$$What a queue holds: the columns of outbox.status.
queue: its name; one that does not exist holds nothing. Errors: 55000 an index of pending or dead is missing. Locks: ACCESS SHARE on queues, pending and dead. Cost: reads at most outbox.count_limit entries of an index for each of five questions, whatever the backlog; with more than five queues, its share of five times that.$$;

CREATE VIEW outbox.status AS
	SELECT q.queue, q.paused, s.pending_count, s.due_unleased_count, s.leased_count, s.expired_lease_count, s.scheduled_count,
		s.waiting_count, s.dead_count, s.oldest_due_age_seconds, s.oldest_pending_age_seconds, s.counts, s.counted_at
	FROM outbox.queues q CROSS JOIN LATERAL outbox.queue_status(q.queue) s;
COMMENT ON VIEW outbox.status IS 'One row for each queue: what is pending, by state, and the dead letters. Reads at most outbox.count_limit entries of a queue for each question, and of many queues no more than of five; counts says what the numbers are where a queue has more.';
COMMENT ON COLUMN outbox.status.queue IS 'the queue';
COMMENT ON COLUMN outbox.status.paused IS 'nothing of it is claimed';
COMMENT ON COLUMN outbox.status.pending_count IS 'messages without a terminal outcome';
COMMENT ON COLUMN outbox.status.due_unleased_count IS 'claimable now, as far as the limits of the queue allow';
COMMENT ON COLUMN outbox.status.leased_count IS 'held by a worker';
COMMENT ON COLUMN outbox.status.expired_lease_count IS 'held by a worker that lost its lease';
COMMENT ON COLUMN outbox.status.scheduled_count IS 'due later';
COMMENT ON COLUMN outbox.status.waiting_count IS 'behind an earlier message of their partition_key, which has not ended, in a fifo queue';
COMMENT ON COLUMN outbox.status.dead_count IS 'ended as FAILED, neither replayed nor acknowledged';
COMMENT ON COLUMN outbox.status.oldest_due_age_seconds IS 'how long the oldest claimable message has been due; NULL = none was found';
COMMENT ON COLUMN outbox.status.oldest_pending_age_seconds IS 'age of the oldest pending message, where counts is not exact the oldest that was read; NULL = none';
COMMENT ON COLUMN outbox.status.counts IS 'exact: all was read. kept: more than outbox.count_limit; totals are those that commits keep since the worker counted, and how they divide into due and scheduled may be as of counted_at. at least: more than outbox.count_limit, and no totals are known';
COMMENT ON COLUMN outbox.status.counted_at IS 'when the worker counted the queue last; NULL = not yet, or the library is not preloaded';

CREATE VIEW outbox.blocked_keys AS
	SELECT k.queue, k.partition_key, coalesce(k.blocked_by, h.outbox_id) AS outbox_id, coalesce(k.blocked_number, h.sequence_id) AS sequence_id,
		CASE
			WHEN k.blocked_by IS NOT NULL THEN 'dead'
			WHEN h.outbox_id IS NULL THEN 'settling'
			WHEN h.lease_expires_at > k.now THEN 'leased'
			WHEN h.lease_expires_at IS NOT NULL THEN 'expired'
			WHEN h.next_attempt_at <= k.now THEN 'due'
			WHEN h.attempt_count > 0 THEN 'retry'
			ELSE 'scheduled'
		END AS reason,
		CASE
			WHEN k.blocked_by IS NOT NULL THEN k.blocked_since
			WHEN h.lease_expires_at IS NOT NULL THEN h.claimed_at
			WHEN h.next_attempt_at <= k.now THEN h.next_attempt_at
			ELSE h.created_at
		END AS since,
		k.behind
	FROM (
		SELECT coalesce(w.queue, m.queue) AS queue, coalesce(w.partition_key, m.partition_key) AS partition_key,
			m.outbox_id AS blocked_by, m.sequence_id AS blocked_number, m.created_at AS blocked_since, coalesce(w.behind, 0) AS behind,
			pg_catalog.clock_timestamp() AS now
		FROM (
			SELECT p.queue, p.partition_key, count(*) AS behind
			FROM outbox.pending p WHERE p.held_back AND p.lease_expires_at IS NULL GROUP BY p.queue, p.partition_key) w
		FULL JOIN (SELECT * FROM outbox.key_marks b WHERE b.kind = 'blocked') m ON m.queue = w.queue AND m.partition_key = w.partition_key) k
	LEFT JOIN outbox.pending h ON h.queue = k.queue AND h.partition_key = k.partition_key AND NOT h.held_back;
COMMENT ON VIEW outbox.blocked_keys IS 'One row for each key of a fifo queue in which messages wait: on which message, why, and how many. Reads all messages that wait, and the heads of their queues.';
COMMENT ON COLUMN outbox.blocked_keys.queue IS 'the queue';
COMMENT ON COLUMN outbox.blocked_keys.partition_key IS 'the key';
COMMENT ON COLUMN outbox.blocked_keys.outbox_id IS 'the message that the others wait for; NULL = the next one becomes the head in a moment';
COMMENT ON COLUMN outbox.blocked_keys.sequence_id IS 'its number';
COMMENT ON COLUMN outbox.blocked_keys.reason IS 'dead: it ended as FAILED, and the queue blocks (see unblock and replay); leased; expired: its lease is, and it is repaired soon; due; retry: its next attempt is due later; scheduled: it is due later; settling: the next one becomes the head in a moment';
COMMENT ON COLUMN outbox.blocked_keys.since IS 'since when: it died, was leased, was due, or was enqueued';
COMMENT ON COLUMN outbox.blocked_keys.behind IS 'messages that wait behind it';

---------------------------------------------------------------- what the server counts, and its background workers

CREATE FUNCTION outbox.queue_stats()
RETURNS TABLE (queue text, enqueued bigint, duplicates bigint, claim_batches bigint, claimed bigint, dispatched bigint,
	failed bigint, retryable bigint, zombie_requeue bigint, leases_lost bigint, repaired bigint,
	cancelled bigint, released bigint, notified bigint, optimistic bigint, optimistic_delivered bigint, optimistic_retried bigint,
	optimistic_failed bigint, optimistic_lost bigint, limited bigint, latency_sum_ms bigint,
	latency_histogram bigint[], wakeup_delay_sum_us bigint, wakeup_delay_histogram bigint[], stats_reset timestamptz)
LANGUAGE c VOLATILE PARALLEL SAFE ROWS 100 AS 'MODULE_PATHNAME', 'outbox_queue_stats';
COMMENT ON FUNCTION outbox.queue_stats() IS
$$The counters in shared memory, a row for each queue of this database that something was counted of; the view outbox.stats shows them for every queue. Empty when the library is not preloaded.
No errors. Takes no lock on tables; reads shared memory only.$$;

CREATE VIEW outbox.stats AS
	SELECT q.queue,
		coalesce(s.enqueued, 0) AS enqueued,
		coalesce(s.duplicates, 0) AS duplicates,
		coalesce(s.claim_batches, 0) AS claim_batches,
		coalesce(s.claimed, 0) AS claimed,
		coalesce(s.dispatched, 0) AS dispatched,
		coalesce(s.failed, 0) AS failed,
		coalesce(s.retryable, 0) AS retryable,
		coalesce(s.zombie_requeue, 0) AS zombie_requeue,
		coalesce(s.leases_lost, 0) AS leases_lost,
		coalesce(s.repaired, 0) AS repaired,
		coalesce(s.cancelled, 0) AS cancelled,
		coalesce(s.released, 0) AS released,
		coalesce(s.notified, 0) AS notified,
		coalesce(s.optimistic, 0) AS optimistic,
		coalesce(s.optimistic_delivered, 0) AS optimistic_delivered,
		coalesce(s.optimistic_retried, 0) AS optimistic_retried,
		coalesce(s.optimistic_failed, 0) AS optimistic_failed,
		coalesce(s.optimistic_lost, 0) AS optimistic_lost,
		coalesce(s.limited, 0) AS limited,
		coalesce(s.latency_sum_ms, 0) AS latency_sum_ms,
		coalesce(s.latency_histogram, pg_catalog.array_fill(0::bigint, ARRAY[13])) AS latency_histogram,
		coalesce(s.wakeup_delay_sum_us, 0) AS wakeup_delay_sum_us,
		coalesce(s.wakeup_delay_histogram, pg_catalog.array_fill(0::bigint, ARRAY[12])) AS wakeup_delay_histogram,
		s.stats_reset
	FROM outbox.queues q LEFT JOIN outbox.queue_stats() s USING (queue);
COMMENT ON VIEW outbox.stats IS 'One row for each queue: what was counted since stats_reset, at most since the start of the server. Counted when a transaction commits; prepared transactions are not counted.';
COMMENT ON COLUMN outbox.stats.queue IS 'the queue';
COMMENT ON COLUMN outbox.stats.enqueued IS 'messages written, replays included';
COMMENT ON COLUMN outbox.stats.duplicates IS 'enqueues that were answered with an earlier message';
COMMENT ON COLUMN outbox.stats.claim_batches IS 'claims that leased something of it';
COMMENT ON COLUMN outbox.stats.claimed IS 'messages leased by claim';
COMMENT ON COLUMN outbox.stats.dispatched IS 'attempts recorded as DISPATCHED';
COMMENT ON COLUMN outbox.stats.failed IS 'attempts recorded as FAILED';
COMMENT ON COLUMN outbox.stats.retryable IS 'attempts recorded as RETRYABLE';
COMMENT ON COLUMN outbox.stats.zombie_requeue IS 'attempts recorded as ZOMBIE_REQUEUE';
COMMENT ON COLUMN outbox.stats.leases_lost IS 'leases that expired and were recorded';
COMMENT ON COLUMN outbox.stats.repaired IS 'of these, those that repair found: the background worker, repair_expired_leases or maintain';
COMMENT ON COLUMN outbox.stats.cancelled IS 'messages cancelled';
COMMENT ON COLUMN outbox.stats.released IS 'leases released by their workers, those that counted as a try included';
COMMENT ON COLUMN outbox.stats.notified IS 'notifications that the background worker sent';
COMMENT ON COLUMN outbox.stats.optimistic IS 'messages enqueued with a lease, by enqueue_and_claim';
COMMENT ON COLUMN outbox.stats.optimistic_delivered IS 'of these, delivered under that lease';
COMMENT ON COLUMN outbox.stats.optimistic_retried IS 'of these, reported as RETRYABLE under that lease';
COMMENT ON COLUMN outbox.stats.optimistic_failed IS 'of these, ended as FAILED under that lease';
COMMENT ON COLUMN outbox.stats.optimistic_lost IS 'of these, that lease expired';
COMMENT ON COLUMN outbox.stats.limited IS 'claims that got less than they wanted because of a limit of the queue, and left messages that were due';
COMMENT ON COLUMN outbox.stats.latency_sum_ms IS 'sum of latency_ms over the attempts that gave one';
COMMENT ON COLUMN outbox.stats.latency_histogram IS 'attempts by latency_ms, up to 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000 ms, and above';
COMMENT ON COLUMN outbox.stats.wakeup_delay_sum_us IS 'microseconds between commit and notification, summed';
COMMENT ON COLUMN outbox.stats.wakeup_delay_histogram IS 'notifications by that delay, up to 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 100000, 1000000 us, and above';
COMMENT ON COLUMN outbox.stats.stats_reset IS 'since when; NULL = nothing was counted yet';

CREATE FUNCTION outbox.reset_stats() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_reset_stats';
COMMENT ON FUNCTION outbox.reset_stats() IS
$$Sets the counters of all queues of this database to zero, as pg_stat_reset does for those of PostgreSQL.
No arguments, no errors. A rollback does not bring them back. Takes no lock on tables. Cost: one pass over shared memory.$$;

CREATE FUNCTION outbox.worker_status()
RETURNS TABLE (kind text, database text, pid integer, state text, since timestamptz, next_wake timestamptz,
	last_error text, last_error_at timestamptz, failures integer, starts bigint, wakeups bigint, notified bigint,
	repaired bigint, unrepaired bigint, unrecorded bigint)
LANGUAGE c VOLATILE PARALLEL SAFE ROWS 10 AS 'MODULE_PATHNAME', 'outbox_worker_status';
COMMENT ON FUNCTION outbox.worker_status() IS
$$The status of the background processes: the rows of the view outbox.workers.
No errors. Takes no lock on tables; reads shared memory, and names of databases.$$;

CREATE VIEW outbox.workers AS
	SELECT s.kind, s.database, s.pid, s.state, s.since, s.next_wake, s.last_error, s.last_error_at, s.failures, s.starts,
		s.wakeups, s.notified, s.repaired, s.unrepaired, s.unrecorded
	FROM outbox.worker_status() s;
COMMENT ON VIEW outbox.workers IS 'The background processes of the server: the launcher, and for each database that has the extension its worker and its maintenance, and what runs its handlers once something did.';
COMMENT ON COLUMN outbox.workers.kind IS 'launcher, worker, maintenance, or handler for all processes that run handlers';
COMMENT ON COLUMN outbox.workers.database IS 'the database it works in; NULL for the launcher';
COMMENT ON COLUMN outbox.workers.pid IS 'its process; NULL = not running';
COMMENT ON COLUMN outbox.workers.state IS 'launcher: running, off (outbox.worker), in trouble, waiting for a lock, not running, not loaded (shared_preload_libraries). worker: running, waiting for a lock, in trouble, left alone (a restore or a subscription fills the tables), not wanted (outbox.databases), other version (of the extension than the library serves), no free slot (max_worker_processes), stopped. maintenance and handler: running, idle, in trouble';
COMMENT ON COLUMN outbox.workers.since IS 'since when it is in that state';
COMMENT ON COLUMN outbox.workers.next_wake IS 'when it wakes unless something wakes it earlier';
COMMENT ON COLUMN outbox.workers.last_error IS 'the last error';
COMMENT ON COLUMN outbox.workers.last_error_at IS 'and when';
COMMENT ON COLUMN outbox.workers.failures IS 'failures in a row until now; 0 = it is well';
COMMENT ON COLUMN outbox.workers.starts IS 'how often it was started since the server was';
COMMENT ON COLUMN outbox.workers.wakeups IS 'how often it woke';
COMMENT ON COLUMN outbox.workers.notified IS 'notifications it sent';
COMMENT ON COLUMN outbox.workers.repaired IS 'expired leases it took back';
COMMENT ON COLUMN outbox.workers.unrepaired IS 'expired leases that it could not take back when it looked last';
COMMENT ON COLUMN outbox.workers.unrecorded IS 'refused reports of audited queues that found no place on their way to outbox.events, since the server started';

CREATE FUNCTION outbox.prometheus() RETURNS text
LANGUAGE sql VOLATILE SET jit = off
BEGIN ATOMIC
	WITH counted AS MATERIALIZED (
		SELECT *
		FROM outbox.status s JOIN outbox.stats c USING (queue) JOIN (SELECT q.queue, q.lease, q.backoff_cap FROM outbox.queues q) q USING (queue)
		CROSS JOIN LATERAL (
			SELECT '{queue="' || replace(replace(replace(s.queue, E'\\', E'\\\\'), '"', E'\\"'), E'\n', E'\\n') || '"' AS labels) n
		CROSS JOIN LATERAL (SELECT n.labels || '} ' AS l, n.labels || ',' AS l_) m
	), worker AS (
		SELECT count(w.pid) AS up, coalesce(sum(w.failures), 0) AS failures, coalesce(sum(w.unrepaired), 0) AS unrepaired
		FROM outbox.workers w WHERE w.kind = 'worker' AND w.database = current_database()
	), metric(queue, name, type, help, samples) AS (
		-- Each metric, in this one list. A sample is what follows the name: suffix, labels and value.
		SELECT c.queue, m.*
		FROM counted c CROSS JOIN LATERAL (VALUES
			('pending_depth', 'gauge', 'Messages without a terminal outcome.', ARRAY[c.l || c.pending_count]),
			('pending_due', 'gauge', 'Pending messages that are due and not leased.', ARRAY[c.l || c.due_unleased_count]),
			('pending_leased', 'gauge', 'Pending messages that a worker holds under a live lease.', ARRAY[c.l || c.leased_count]),
			('pending_expired', 'gauge', 'Pending messages whose lease has expired and was not yet repaired.', ARRAY[c.l || c.expired_lease_count]),
			('pending_scheduled', 'gauge', 'Pending messages that are due later: delayed, or waiting for the next try.', ARRAY[c.l || c.scheduled_count]),
			('pending_waiting', 'gauge', 'Pending messages behind an earlier message of their partition key, in a fifo queue.', ARRAY[c.l || c.waiting_count]),
			('blocked_keys', 'gauge', 'Partition keys that a dead message blocks, of a fifo queue; at most 1000 are counted.', ARRAY[c.l || (
				SELECT count(*) FROM (SELECT FROM outbox.key_marks k WHERE k.queue = c.queue AND k.kind = 'blocked' LIMIT 1000) k)]),
			('dead_letters', 'gauge', 'Messages that ended as FAILED and were neither replayed nor acknowledged.', ARRAY[c.l || c.dead_count]),
			('counts_exact', 'gauge', '1 when the gauges of the queue were counted, 0 when it holds too many: see outbox.status.', ARRAY[c.l || (c.counts = 'exact')::integer]),
			('oldest_pending_age_seconds', 'gauge', 'Age of the oldest pending message; 0 when there is none.',
				ARRAY[c.l || trim_scale(coalesce(c.oldest_pending_age_seconds, 0)::numeric)]),
			('oldest_claimable_age_seconds', 'gauge', 'How long the longest waiting message that is due and not leased has been due; 0 when there is none.',
				ARRAY[c.l || trim_scale(coalesce(c.oldest_due_age_seconds, 0)::numeric)]),
			('queue_paused', 'gauge', '1 while the queue is paused, so that nothing of it is claimed.', ARRAY[c.l || c.paused::integer]),
			('queue_lease_seconds', 'gauge', 'How long a lease of the queue lasts: its setting.', ARRAY[c.l || trim_scale(extract(epoch FROM c.lease))]),
			('queue_backoff_cap_seconds', 'gauge', 'The longest delay between two tries of a message of the queue: its setting.',
				ARRAY[c.l || trim_scale(extract(epoch FROM c.backoff_cap))]),
			('enqueued_total', 'counter', 'Messages written, replays included.', ARRAY[c.l || c.enqueued]),
			('duplicates_total', 'counter', 'Enqueues that were answered with an earlier message.', ARRAY[c.l || c.duplicates]),
			('claim_batches_total', 'counter', 'Claims that leased something of the queue.', ARRAY[c.l || c.claim_batches]),
			('claimed_total', 'counter', 'Messages leased by claim.', ARRAY[c.l || c.claimed]),
			('attempts_total', 'counter', 'Attempts recorded in the ledger, by state.',
				ARRAY[c.l_ || 'state="DISPATCHED"} ' || c.dispatched, c.l_ || 'state="FAILED"} ' || c.failed,
					c.l_ || 'state="RETRYABLE"} ' || c.retryable, c.l_ || 'state="ZOMBIE_REQUEUE"} ' || c.zombie_requeue]),
			('lease_repairs_total', 'counter', 'Expired leases that repair took back.', ARRAY[c.l || c.repaired]),
			('leases_lost_total', 'counter', 'Leases that expired and were recorded.', ARRAY[c.l || c.leases_lost]),
			('cancelled_total', 'counter', 'Messages cancelled.', ARRAY[c.l || c.cancelled]),
			('released_total', 'counter', 'Leases released by their workers.', ARRAY[c.l || c.released]),
			('limited_total', 'counter', 'Claims that a limit of the queue stopped while messages were due.', ARRAY[c.l || c.limited]),
			('notify_wakeups_total', 'counter', 'Notifications sent by the background worker.', ARRAY[c.l || c.notified]),
			('optimistic_sends_total', 'counter', 'Messages born leased to their producer, by enqueue_and_claim.', ARRAY[c.l || c.optimistic]),
			('optimistic_outcomes_total', 'counter', 'What became of the leases that messages were born with, by outcome.',
				ARRAY[c.l_ || 'outcome="delivered"} ' || c.optimistic_delivered, c.l_ || 'outcome="retried"} ' || c.optimistic_retried,
					c.l_ || 'outcome="failed"} ' || c.optimistic_failed, c.l_ || 'outcome="lost"} ' || c.optimistic_lost]),
			('dispatch_latency_seconds', 'histogram', 'How long deliveries took, as the workers measured: latency_ms of the attempts that gave one.',
				ARRAY(
					SELECT '_bucket' || c.l_ || 'le="' || b.le || '"} ' || sum(b.n) OVER (ORDER BY b.place)
					FROM unnest('{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,+Inf}'::text[], c.latency_histogram) WITH ORDINALITY b(le, n, place) ORDER BY b.place)
				|| ARRAY['_sum' || c.l || trim_scale(c.latency_sum_ms / 1000.0), '_count' || c.l || (SELECT sum(n) FROM unnest(c.latency_histogram) n)]),
			('wakeup_delay_seconds', 'histogram', 'From the commit that made a message claimable to the notification by the background worker.',
				ARRAY(
					SELECT '_bucket' || c.l_ || 'le="' || b.le || '"} ' || sum(b.n) OVER (ORDER BY b.place)
					FROM unnest('{5e-05,0.0001,0.00025,0.0005,0.001,0.0025,0.005,0.01,0.025,0.1,1,+Inf}'::text[], c.wakeup_delay_histogram) WITH ORDINALITY b(le, n, place) ORDER BY b.place)
				|| ARRAY['_sum' || c.l || trim_scale(c.wakeup_delay_sum_us / 1000000.0), '_count' || c.l || (SELECT sum(n) FROM unnest(c.wakeup_delay_histogram) n)])
			) m(name, type, help, samples)
		UNION ALL
		SELECT '', m.*
		FROM worker w CROSS JOIN LATERAL (VALUES
			('worker_up', 'gauge', '1 when the background worker of this database runs.', ARRAY[' ' || w.up]),
			('worker_failures', 'gauge', 'Failures in a row of the background worker of this database; 0 when it is well.', ARRAY[' ' || w.failures]),
			('worker_unrepaired_leases', 'gauge', 'Expired leases that the background worker could not repair when it looked last.', ARRAY[' ' || w.unrepaired]),
			-- by their names, in an index: there may be thousands for times that are over
			('partitions_ahead', 'gauge', 'Partitions of outbox.messages that upkeep made for times to come.', ARRAY[' ' || (
				SELECT count(*) FROM pg_class p
				WHERE p.relnamespace = 'outbox'::regnamespace AND p.relispartition AND p.relname < 'messages_q'
					AND p.relname > ('messages_p' || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MI'))::name)]),
			('seals_total', 'counter', 'Seals of the database.', ARRAY[' ' || coalesce((SELECT max(s.seal_no) FROM outbox.seals s), 0)]),
			('seal_age_seconds', 'gauge', 'How long ago the window of the latest seal ended; 0 when there is none.', ARRAY[' ' || coalesce((
				SELECT trim_scale(greatest(extract(epoch FROM clock_timestamp() - s.to_at), 0)) FROM outbox.seals s ORDER BY s.seal_no DESC LIMIT 1), 0)]),
			('seal_interval_seconds', 'gauge', 'How often seals are made, outbox.seal_interval; 0 when they are not.', ARRAY[' ' || trim_scale(
				coalesce(extract(epoch FROM current_setting('outbox.seal_interval', true)::interval), 0))]),
			('notification_queue_usage_ratio', 'gauge', 'Share of the server''s notification queue that is in use.',
				ARRAY[' ' || trim_scale(pg_notification_queue_usage()::numeric)])
			) m(name, type, help, samples)
	), shown AS (
		SELECT m.name, m.type, m.help,
			string_agg('outbox_' || m.name || array_to_string(m.samples, chr(10) || 'outbox_' || m.name) || chr(10), '' ORDER BY m.queue) AS samples
		FROM metric m GROUP BY m.name, m.type, m.help
	)
	SELECT string_agg('# HELP outbox_' || s.name || ' ' || s.help || chr(10) || '# TYPE outbox_' || s.name || ' ' || s.type || chr(10) || s.samples,
		'' ORDER BY s.name)
	FROM shown s;
END;
COMMENT ON FUNCTION outbox.prometheus() IS
$$What outbox.status, outbox.stats and outbox.workers show, in the text exposition format of Prometheus: gauges and counters by queue, of this database; times in seconds. Worker and notification queue have no label. An age is 0 if nothing waits; counters are all 0 if the library is not preloaded, and restart with the server and at reset_stats().
No arguments. Errors: 55000 as outbox.queue_status. Takes no lock but those of reading. Cost: some milliseconds, and less than half a millisecond a queue, whatever the backlog.$$;

---------------------------------------------------------------- check

CREATE FUNCTION outbox.table_problems(relation regclass, shape text) RETURNS TABLE (sqlstate text, problem text)
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_table_problems';
COMMENT ON FUNCTION outbox.table_problems(regclass, text) IS
$$Of check(): what keeps the functions from working on a table.
relation: the table. shape: which table of the install script it should be like. sqlstate: of the error that the functions raise; NULL = they work all the same.
Errors: 22023 an unknown shape. Locks: ACCESS SHARE. Cost: reads catalogs.$$;

CREATE FUNCTION outbox.check_rows(deep boolean)
RETURNS TABLE (severity text, object text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH leaves AS (
		SELECT i.inhrelid AS oid FROM pg_inherits i WHERE i.inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass)
	)
	SELECT 'warning', 'outbox.messages_default', 'holds messages, which keep their time there: retention deals with them when all have ended'
	WHERE EXISTS (SELECT 1 FROM outbox.messages_default)
	UNION ALL
	SELECT 'warning', 'outbox.retention', 'everything is kept for ever, ' || pg_size_pretty(s.bytes) || ' so far: see outbox.set_retention'
	FROM (
		SELECT sum(c.relpages::bigint) * current_setting('block_size')::bigint AS bytes
		FROM pg_class c
		WHERE c.oid IN (
			SELECT l.oid FROM leaves l
			UNION ALL SELECT t.reltoastrelid FROM leaves l JOIN pg_class t ON t.oid = l.oid
			UNION ALL SELECT x.indexrelid FROM leaves l JOIN pg_index x ON x.indrelid = l.oid)) s
	WHERE s.bytes > 10::bigint * 1024 * 1024 * 1024 AND NOT EXISTS (SELECT 1 FROM outbox.retention r WHERE r.keep IS NOT NULL)
	UNION ALL
	SELECT 'warning', 'outbox.retention', 'no old data is retired: ' || CASE WHEN n.oid IS NULL THEN 'there is no schema ' || quote_ident(r.archive_schema)
		ELSE 'outbox_owner needs USAGE and CREATE on schema ' || quote_ident(r.archive_schema) END || ', the archive_schema of outbox.set_retention'
	FROM outbox.retention r LEFT JOIN pg_namespace n ON n.nspname = r.archive_schema
	WHERE r.keep IS NOT NULL AND r.archive_schema IS NOT NULL
		AND (has_schema_privilege('outbox_owner', n.oid, 'USAGE') AND has_schema_privilege('outbox_owner', n.oid, 'CREATE')) IS NOT TRUE
	UNION ALL
	-- one look a queue, whatever is pending
	SELECT 'error', 'queue ' || quote_ident(p.queue), 'does not exist, but messages of it are pending: no claim finds them'
	FROM (
		WITH RECURSIVE used(queue) AS (
			(SELECT p.queue FROM outbox.pending p ORDER BY p.queue LIMIT 1)
			UNION ALL
			SELECT (SELECT p.queue FROM outbox.pending p WHERE p.queue > u.queue ORDER BY p.queue LIMIT 1) FROM used u WHERE u.queue IS NOT NULL
		)
		SELECT u.queue FROM used u WHERE u.queue IS NOT NULL) p
	WHERE NOT EXISTS (SELECT 1 FROM outbox.queues q WHERE q.queue = p.queue)
	UNION ALL
	-- among the first of each queue, where such rows gather
	SELECT 'error', 'outbox.pending', 'message ' || p.outbox_id || ' is pending, but there is no such message: claims pass it by'
	FROM outbox.queues q CROSS JOIN LATERAL (
		SELECT p.outbox_id FROM outbox.pending p WHERE p.queue = q.queue
		ORDER BY p.priority DESC, GREATEST(p.next_attempt_at, p.lease_expires_at) LIMIT 100) p
	WHERE (SELECT true FROM outbox.messages m WHERE m.outbox_id = p.outbox_id LIMIT 1) IS NULL
	UNION ALL
	SELECT 'warning', 'queue ' || quote_ident(m.queue), count(*) || ' keys are blocked by a dead message, ' || quote_literal(min(m.partition_key))
		|| ' for one: see outbox.blocked_keys, outbox.unblock and outbox.replay'
	FROM outbox.key_marks m WHERE m.kind = 'blocked' GROUP BY m.queue
	UNION ALL
	SELECT 'warning', 'queue ' || quote_ident(q.queue), 'nothing can be claimed: leases that expired more than a minute ago and were not repaired take up max_in_flight'
	FROM outbox.queues q
	WHERE (SELECT count(*) FROM (
			SELECT 1 FROM outbox.pending p WHERE p.queue = q.queue AND p.lease_expires_at < clock_timestamp() - interval '1 minute'
			LIMIT q.max_in_flight) l) >= q.max_in_flight
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(k.queue),
		CASE WHEN k.heads = 0 THEN 'no claim finds the messages of ' || count(*) || ' keys, ' || quote_literal(min(k.partition_key))
			|| ' for one: all are held back, and nothing says behind what: cancel the first of the key and call outbox.maintain(), and it goes on'
		ELSE 'of ' || count(*) || ' keys, ' || quote_literal(min(k.partition_key)) || ' for one, more than one message can be claimed, or not the first' END
	FROM (
		SELECT p.queue, p.partition_key, CASE count(*) FILTER (WHERE NOT p.held_back) WHEN 0 THEN 0 ELSE 1 END AS heads
		FROM outbox.pending p JOIN outbox.queues q ON q.queue = p.queue AND q.ordering = 'fifo'
		WHERE deep AND p.sequence_id IS NOT NULL AND p.partition_key IS NOT NULL
		GROUP BY p.queue, p.partition_key
		HAVING count(*) FILTER (WHERE NOT p.held_back) > 1 OR min(p.sequence_id) < min(p.sequence_id) FILTER (WHERE NOT p.held_back)
			OR count(*) FILTER (WHERE NOT p.held_back) = 0
				AND NOT EXISTS (SELECT 1 FROM outbox.key_marks m WHERE m.queue = p.queue AND m.partition_key = p.partition_key)) k
	GROUP BY k.queue, k.heads
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(q.queue),
		count(*) || ' messages have no fair_key, or one of other settings, so they have no turn: fair_by or max_in_flight_per_key was changed by hand'
	FROM outbox.pending p JOIN outbox.queues q USING (queue)
	WHERE deep AND ((p.fair_key IS NULL) <> (q.fair_by IS NULL AND q.max_in_flight_per_key IS NULL)
		OR (p.fair_key < 0) <> (q.max_in_flight_per_key IS NOT NULL))
	GROUP BY q.queue
	;
END;
COMMENT ON FUNCTION outbox.check_rows(boolean) IS
$$What check() asks of the rows: pending ones without a message or a queue, those in DEFAULT, how much there is without a retention, an archive that retention cannot use, keys that a dead message blocks, and limits that expired leases use up. deep: also ordered keys without a head, or with two, and messages without a turn in queues that serve keys in turn.
No errors. Locks: those of reading. Cost: a few look-ups a queue; deep: reads pending.$$;

---------------------------------------------------------------- many messages, and one

CREATE FUNCTION outbox.checked_batch(queue text, batch_size integer, reason text, dry_run boolean) RETURNS integer
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_checked_batch';
COMMENT ON FUNCTION outbox.checked_batch(text, integer, text, boolean) IS
$$Returns how many messages to do: batch_size, or 0 in a dry run; for cancel_many and replay_many, before they look for anything.
Errors: P7004 unknown queue; 22004; 22023 an empty reason, batch_size below 1 or above outbox.max_batch; 25006 dry_run is false in a read-only transaction. Locks: those of reading. Cost: one row read.$$;

CREATE FUNCTION outbox.cancel_up_to(queue text, wanted integer, reason text, event_type text, error_code text, since timestamptz, until timestamptz, force boolean)
RETURNS TABLE (outbox_id uuid, event text, last_error text, outcome text)
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel_up_to';
COMMENT ON FUNCTION outbox.cancel_up_to(text, integer, text, text, text, timestamptz, timestamptz, boolean) IS
$$cancel() for pending messages of a queue that match, in the order of their ids, until so many are cancelled, or 10000 have failed since the first was: for cancel_many. It reads some 10000 more than it needs; if wanted is 0, it reads all and cancels none. One row for each that it found: outcome is done, leased, an SQLSTATE or, where it was not tried, NULL. A row of NULLs, the last one, says that it has not read to the end; then at least one of those that it found was not tried.
Errors: 22004, 22023; 25006 wanted is not 0 in a read-only transaction. Locks: the pending rows; it waits for none. Cost: reads the pending messages up to the last that it finds, those of the queue with a look-up in messages and one in the ledger, and that of cancel() for each that it tries.$$;

CREATE FUNCTION outbox.replay_up_to(queue text, wanted integer, event_type text, error_code text, since timestamptz, until timestamptz, again boolean)
RETURNS TABLE (outbox_id uuid, event text, last_error text, outcome text)
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_replay_up_to';
COMMENT ON FUNCTION outbox.replay_up_to(text, integer, text, text, timestamptz, timestamptz, boolean) IS
$$replay() for dead letters of a queue that match, as cancel_up_to: for replay_many. Of those that it finds it takes a numbered key in the order of its numbers. Once another transaction has something of a key, the rest of it is 55P03. What was acknowledged meanwhile is P7005. outcome: also "a replay".
Errors: 22004, 22023; 25006 wanted is not 0 in a read-only transaction. Locks: as replay_batch. Cost: as cancel_up_to, of dead letters and replay().$$;

CREATE FUNCTION outbox.confirmed(queue text, queue_again text) RETURNS boolean
LANGUAGE c IMMUTABLE AS 'MODULE_PATHNAME', 'outbox_confirmed';
COMMENT ON FUNCTION outbox.confirmed(text, text) IS
$$Whether queue_again repeats the name of the queue, false for NULL; for purge.
Errors: 22004 queue is NULL; 22023 queue_again is another name. Takes no locks, costs nothing.$$;

CREATE FUNCTION outbox.cancel_many(queue text, reason text, event_type text DEFAULT NULL, error_code text DEFAULT NULL,
	since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, batch_size integer DEFAULT 1000, dry_run boolean DEFAULT true, force boolean DEFAULT false)
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH found AS MATERIALIZED (
		SELECT f.outbox_id, f.event, f.last_error, f.outcome FROM outbox.cancel_up_to(cancel_many.queue, outbox.checked_batch(cancel_many.queue, cancel_many.batch_size, cancel_many.reason, cancel_many.dry_run), cancel_many.reason,
			cancel_many.event_type, cancel_many.error_code, cancel_many.since, cancel_many.until, cancel_many.force) f
	)
	SELECT f.event, f.last_error, count(*), count(*) FILTER (WHERE f.outcome = 'done'), count(*) FILTER (WHERE f.outcome <> 'done'), count(*) FILTER (WHERE f.outcome IS NULL),
		EXISTS (SELECT FROM found m WHERE m.outbox_id IS NULL),
		string_agg(DISTINCT CASE f.outcome WHEN 'done' THEN NULL WHEN '55006' THEN 'leased' WHEN '55P03' THEN 'in use' WHEN 'P7005' THEN 'ended' ELSE f.outcome END, ', '),
		min(f.outbox_id::text)::uuid
	FROM found f WHERE f.outbox_id IS NOT NULL
	GROUP BY f.event, f.last_error ORDER BY f.event, f.last_error;
END;
COMMENT ON FUNCTION outbox.cancel_many(text, text, text, text, timestamptz, timestamptz, integer, boolean, boolean) IS
$$Cancels the pending messages of a queue that match, or shows what it would cancel: one row for each event type and last error.
queue, reason: as in cancel. event_type, error_code (of the last attempt), since and until (from created_at on, and before): NULL = all. batch_size: cancel at most so many in this call, oldest first; those that cannot be cancelled do not count, up to 10000 of them after the first that is cancelled. dry_run: false = cancel. force: also what a worker holds under a live lease. NULL = the default.
matching: how many it found. done: cancelled now. skipped: left alone: why = leased, in use by another transaction, ended meanwhile, or an SQLSTATE. remaining: left for the next call. more: it has not read to the end, so matching and remaining are lower bounds, and rows for other types and errors may be missing; a call that cancels reads some 10000 behind the last that it needs, and at least one is remaining then. sample: the oldest.
Errors: P7004 unknown queue; 22004, 22023 bad arguments; 25006 dry_run is false in a read-only transaction. Locks: the pending rows that it cancels, until the end of the transaction; it waits for none. Cost: that of cancel() for each that it cancels, and reads the pending messages up to the last that it finds, those of the queue with a look-up in messages and one in the ledger; a dry run reads all.$$;

CREATE FUNCTION outbox.replay_many(queue text, event_type text DEFAULT NULL, error_code text DEFAULT NULL,
	since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, batch_size integer DEFAULT 1000, dry_run boolean DEFAULT true, again boolean DEFAULT false)
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH found AS MATERIALIZED (
		SELECT f.outbox_id, f.event, f.last_error, f.outcome FROM outbox.replay_up_to(replay_many.queue, outbox.checked_batch(replay_many.queue, replay_many.batch_size, 'replayed', replay_many.dry_run),
			replay_many.event_type, replay_many.error_code, replay_many.since, replay_many.until, replay_many.again) f
	)
	SELECT f.event, f.last_error, count(*), count(*) FILTER (WHERE f.outcome = 'done'), count(*) FILTER (WHERE f.outcome <> 'done'), count(*) FILTER (WHERE f.outcome IS NULL),
		EXISTS (SELECT FROM found m WHERE m.outbox_id IS NULL),
		string_agg(DISTINCT CASE f.outcome WHEN 'done' THEN NULL WHEN '55P03' THEN 'in use' WHEN 'P7005' THEN 'replayed, acknowledged or gone' ELSE f.outcome END, ', '),
		min(f.outbox_id::text)::uuid
	FROM found f WHERE f.outbox_id IS NOT NULL
	GROUP BY f.event, f.last_error ORDER BY f.event, f.last_error;
END;
COMMENT ON FUNCTION outbox.replay_many(text, text, text, timestamptz, timestamptz, integer, boolean, boolean) IS
$$Replays the dead letters of a queue that match, or shows what it would replay: one row for each event type and error. It leaves alone what was acknowledged, what was cancelled, unless error_code is CANCELLED, and what is itself a replay, unless again is true: so two calls deliver no message twice.
queue: an existing one. event_type, error_code, since and until (from died_at on, and before): NULL = all. batch_size: replay at most so many in this call, oldest first, of a numbered key in the order of its numbers, among those that one call finds; those that cannot be replayed do not count, up to 10000 of them after the first that is replayed. dry_run: false = replay. again: also replays that died. NULL = the default.
matching: how many it found. done: replayed now. skipped: left alone: why = a replay, in use by another transaction, replayed, acknowledged or gone meanwhile, or an SQLSTATE. remaining: left for the next call. more: as of cancel_many. sample: the oldest.
Errors: P7004 unknown queue; 22004, 22023 bad arguments; 25006 dry_run is false in a read-only transaction. Locks: as replay_batch; it waits for none. Cost: that of replay() for each that it replays, and reads the dead letters up to the last that it finds, those of the queue with a look-up in messages and one in the ledger; a dry run reads all.$$;

CREATE FUNCTION outbox.purge(queue text, queue_again text DEFAULT NULL, batch_size integer DEFAULT 1000, force boolean DEFAULT false)
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	SELECT m.event, m.last_error, m.matching, m.done, m.skipped, m.remaining, m.more, m.why, m.sample
	FROM outbox.cancel_many(purge.queue, 'purged', batch_size => purge.batch_size, dry_run => NOT outbox.confirmed(purge.queue, purge.queue_again),
		force => purge.force) m;
END;
COMMENT ON FUNCTION outbox.purge(text, text, integer, boolean) IS
$$Cancels all pending messages of a queue, with the reason "purged", or shows what it would cancel: cancel_many() without a filter. They are dead letters then, and can be replayed.
queue, queue_again: the queue, twice; queue_again NULL = only show. batch_size, force: as in cancel_many.
Errors: 22023 queue_again is another name, and as cancel_many. Locks and cost: as cancel_many.$$;

CREATE FUNCTION outbox.shown_time(at timestamptz, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
RETURN date_trunc('second', shown_time.at)::text || CASE WHEN shown_time.at > shown_time.now THEN ' (in ' || date_trunc('second', shown_time.at - shown_time.now)::text || ')'
	ELSE ' (' || date_trunc('second', shown_time.now - shown_time.at)::text || ' ago)' END;
COMMENT ON FUNCTION outbox.shown_time(timestamptz, timestamptz) IS
$$A time, and how far it is from now, in words; for explain.
No errors, no locks, no cost.$$;

CREATE FUNCTION outbox.row_holders(outbox_id uuid) RETURNS TABLE (xid xid, pid integer)
LANGUAGE c STABLE ROWS 1 AS 'MODULE_PATHNAME', 'outbox_row_holders';
COMMENT ON FUNCTION outbox.row_holders(uuid) IS
$$The open transactions, other than the caller's, that have locked or changed the pending row of a message, in a savepoint or not: claims pass it by until they end. pid: NULL = prepared, or on the primary of this standby.
outbox_id: the message. Errors: 22004. Locks: those of reading. Cost: one row read.$$;

CREATE FUNCTION outbox.explain(outbox_id uuid) RETURNS text
LANGUAGE sql STABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH asked AS MATERIALIZED (
		SELECT explain.outbox_id AS id, clock_timestamp() AS now, pg_is_in_recovery() AS is_standby, outbox.message_facts(explain.outbox_id) AS m, outbox.last_attempt(explain.outbox_id) AS a
	), its AS MATERIALIZED (
		SELECT p.queue, p.partition_key, p.sequence_id, p.fair_key, p.priority, p.held_back, p.attempt_count, p.release_count, p.next_attempt_at,
			p.claimed_by, p.claimed_at, p.lease_expires_at, CASE
				WHEN p.lease_expires_at > k.now THEN 'leased'
				WHEN p.lease_expires_at IS NOT NULL THEN 'expired'
				WHEN p.held_back THEN 'waiting'
				WHEN p.next_attempt_at > k.now THEN 'scheduled'
				ELSE 'due' END AS state,
			outbox.key_digest(p.queue, p.partition_key) AS digest, p.attempt_count + 1 >= coalesce(p.max_attempts, q.max_attempts) AS is_last,
			coalesce(p.max_attempts, q.max_attempts) AS ceiling, q.queue IS NOT NULL AS has_queue, q.paused, q.fair_by, q.priority_aging, q.repair_delay, q.handler, q.rate_limit, q.max_in_flight, q.max_in_flight_per_key
		FROM asked k JOIN outbox.pending p ON p.outbox_id = k.id LEFT JOIN outbox.queues q ON q.queue = p.queue
	), holder AS MATERIALIZED (
		SELECT h.pid, true AS is_there, EXISTS (SELECT FROM pg_prepared_xacts x WHERE x.transaction = h.xid) AS is_prepared
		FROM outbox.row_holders(explain.outbox_id) h ORDER BY h.pid LIMIT 1
	), head AS MATERIALIZED (
		SELECT h.outbox_id, h.sequence_id, h.claimed_by, h.lease_expires_at, h.next_attempt_at, h.attempt_count,
			(SELECT count(*) FROM outbox.pending b WHERE outbox.key_digest(b.queue, b.partition_key) = r.digest AND b.sequence_id IS NOT NULL
				AND b.sequence_id < r.sequence_id AND b.sequence_id > h.sequence_id) AS between_them
		FROM its r JOIN outbox.pending h ON outbox.key_digest(h.queue, h.partition_key) = r.digest AND h.sequence_id IS NOT NULL AND NOT h.held_back
		WHERE r.held_back ORDER BY h.sequence_id LIMIT 1
	), blocker AS MATERIALIZED (
		SELECT b.outbox_id, b.sequence_id, b.created_at FROM its r JOIN outbox.key_marks b ON b.queue = r.queue AND b.digest = r.digest AND b.kind = 'blocked'
		WHERE r.held_back LIMIT 1
	), queue AS MATERIALIZED (
		SELECT s.due_unleased_count AS due, s.leased_count + s.expired_lease_count AS leased, s.counts FROM its r CROSS JOIN LATERAL outbox.queue_status(r.queue) s
	), worker AS MATERIALIZED (
		SELECT EXISTS (SELECT 1 FROM outbox.worker_status() w WHERE w.kind = 'worker' AND w.database = current_database() AND w.pid IS NOT NULL) AS runs,
			(SELECT min(w.last_error) FROM outbox.worker_status() w WHERE w.kind = 'handler' AND w.database = current_database() AND w.failures > 0) AS handler_error
	), dead AS MATERIALIZED (
		SELECT d.acknowledged_at, d.acknowledged_by, d.reason, b.outbox_id IS NOT NULL AS blocks
		FROM outbox.dead d LEFT JOIN outbox.key_marks b ON b.queue = d.queue AND b.kind = 'blocked' AND b.outbox_id = d.outbox_id
		WHERE d.outbox_id = explain.outbox_id
	), told AS MATERIALIZED (
		-- the last attempt
		SELECT format('attempt %s, %s%s, at %s%s', (k.a).attempt_no, (k.a).state, ' by ' || quote_literal(coalesce((k.a).worker_id, (k.a).recorded_by)), outbox.shown_time((k.a).created_at, k.now),
			': ' || nullif(concat_ws(': ', (k.a).error_code, nullif((k.a).error_message, '')), '')) AS attempt
		FROM asked k WHERE (k.a).attempt_no IS NOT NULL
	)
	SELECT concat_ws(' ',
		CASE WHEN (k.m).queue IS NULL AND r.queue IS NULL
			THEN format('There is no message %s: the transaction that enqueued it has not committed or was rolled back, its partition was retired, or the id is wrong.', k.id)
			ELSE format('Message %s (%s, queue %s%s%s) ', k.id, coalesce((k.m).event_type, 'not found in messages: see outbox.check()'), quote_literal(coalesce(r.queue, (k.m).queue)),
				', key ' || quote_literal((k.m).partition_key), ', number ' || (k.m).sequence_id)
			|| CASE
				WHEN r.state = 'leased' THEN format('is held by worker %s since %s, until %s.', quote_literal(r.claimed_by), outbox.shown_time(r.claimed_at, k.now), outbox.shown_time(r.lease_expires_at, k.now))
				WHEN r.state = 'expired' THEN format('was held by worker %s, whose lease ended at %s.', quote_literal(r.claimed_by), outbox.shown_time(r.lease_expires_at, k.now))
				WHEN r.state = 'waiting' THEN 'waits for an earlier message of its key.'
				WHEN r.state = 'scheduled' AND r.attempt_count = 0 THEN format('is scheduled for %s.', outbox.shown_time(r.next_attempt_at, k.now))
				WHEN r.state = 'scheduled' THEN format('waits for its next attempt at %s.', outbox.shown_time(r.next_attempt_at, k.now))
				WHEN r.state = 'due' THEN format('is due since %s, and no worker holds it.', outbox.shown_time(r.next_attempt_at, k.now))
				WHEN (k.a).state = 'DISPATCHED' THEN 'was delivered: ' || t.attempt || '. Nothing more happens with it.'
				WHEN (k.a).state = 'FAILED' THEN 'is a dead letter: ' || t.attempt || '.'
				ELSE 'is neither pending nor ended: outbox.restore_pending() puts it back.' END END,
		CASE WHEN r.queue IS NOT NULL AND t.attempt IS NULL THEN 'It was not tried yet.'
			WHEN r.queue IS NOT NULL THEN format('Attempts so far: %s%s; the last one: %s.', (k.a).attempt_no, ' of ' || r.ceiling, t.attempt) END,
		CASE WHEN r.release_count > 0 THEN format('Given back untried: %s, as the relay does while its sink is away.', r.release_count) END,
		-- ended
		CASE WHEN r.queue IS NULL AND (k.a).state = 'FAILED' THEN CASE
			WHEN y.replay_id IS NOT NULL THEN format('It was replayed as %s.', y.replay_id)
			WHEN d.acknowledged_at IS NOT NULL THEN format('%s acknowledged it at %s: %s. It stays dead, unless you call outbox.replay().', quote_literal(d.acknowledged_by), outbox.shown_time(d.acknowledged_at, k.now), d.reason)
				|| CASE WHEN d.blocks THEN ' It still blocks its key: nothing behind it is delivered before you call outbox.replay() or outbox.unblock().' ELSE '' END
			WHEN d.blocks THEN 'It blocks its key: nothing behind it is delivered before you call outbox.replay() or outbox.unblock().'
			ELSE 'Nothing happens before you decide: outbox.replay() delivers it again, outbox.acknowledge_dead() lets it rest.' END END,
		-- what is in its way
		CASE WHEN r.state = 'waiting' THEN CASE
			WHEN b.outbox_id IS NOT NULL THEN format('Its key is blocked by message %s, number %s, which died at %s: call outbox.replay() for that, or outbox.unblock().', b.outbox_id, b.sequence_id, outbox.shown_time(b.created_at, k.now))
			WHEN h.outbox_id IS NOT NULL THEN format('That is message %s, number %s, which %s%s.', h.outbox_id, h.sequence_id, CASE
					WHEN h.lease_expires_at > k.now THEN format('worker %s holds until %s', quote_literal(h.claimed_by), outbox.shown_time(h.lease_expires_at, k.now))
					WHEN h.lease_expires_at IS NOT NULL THEN format('worker %s held until %s', quote_literal(h.claimed_by), outbox.shown_time(h.lease_expires_at, k.now))
					WHEN h.next_attempt_at <= k.now THEN format('is due since %s', outbox.shown_time(h.next_attempt_at, k.now))
					WHEN h.attempt_count > 0 THEN format('waits for its next attempt at %s', outbox.shown_time(h.next_attempt_at, k.now))
					ELSE format('is scheduled for %s', outbox.shown_time(h.next_attempt_at, k.now)) END,
				CASE WHEN h.between_them > 0 THEN format('; messages of the key between the two: %s', h.between_them) END)
			ELSE 'The first message of the key has just ended: this key goes on in a moment.' END END,
		CASE WHEN x.pid IS NOT NULL THEN format('The transaction of process %s has its row in use, and claims pass it by until that ends: see pg_stat_activity.', x.pid)
			WHEN x.is_prepared THEN 'A prepared transaction has its row in use, and claims pass it by until that ends: see pg_prepared_xacts.'
			WHEN x.is_there THEN 'Another transaction has its row in use, and claims pass it by until that ends.' END,
		CASE WHEN r.has_queue = false THEN 'Its queue does not exist, so no claim finds it: outbox.create_queue() makes it again.' END,
		CASE WHEN r.paused THEN 'The queue is paused: nothing is claimed before outbox.resume().' END,
		CASE WHEN r.queue IS NOT NULL AND current_setting('outbox.hold', true)::boolean THEN 'outbox.hold is on: nothing is claimed.' END,
		CASE WHEN r.state <> 'leased' AND q.leased >= r.max_in_flight THEN format('As many messages of the queue are leased as max_in_flight allows: %s.', r.max_in_flight) END,
		CASE WHEN r.state NOT IN ('leased', 'expired') AND r.fair_key < 0 AND r.partition_key IS NOT NULL
				AND (SELECT count(*) FROM outbox.pending l WHERE l.fair_key = r.fair_key AND l.fair_key < 0 AND l.lease_expires_at IS NOT NULL) >= r.max_in_flight_per_key
			THEN format('As many messages of its key are leased as max_in_flight_per_key allows: %s.', r.max_in_flight_per_key) END,
		CASE WHEN r.state = 'due' AND r.rate_limit IS NOT NULL THEN format('rate_limit lets %s messages of the queue a second be leased.', r.rate_limit) END,
		CASE WHEN r.state = 'due' AND NOT r.held_back AND r.priority_aging IS NULL AND r.fair_by IS NULL AND EXISTS (SELECT 1 FROM outbox.pending o WHERE o.queue = r.queue AND o.priority > r.priority AND NOT o.held_back
				AND greatest(o.next_attempt_at, o.lease_expires_at) <= k.now)
			THEN 'Messages of a higher priority are due as well.' END,
		CASE WHEN r.handler IS NOT NULL AND w.handler_error IS NOT NULL THEN format('A handler of this database is in trouble, of this queue or of another: %s.', w.handler_error) END,
		-- what happens next
		CASE
			WHEN r.state = 'leased' AND r.held_back THEN 'It is leased with the messages before it in its key: if their lease ends first, it is given back untried, and waits for its turn.'
			WHEN r.state = 'leased' AND r.is_last THEN format('If %s does not report by then, that counts as the last attempt, and the message ends as FAILED.', quote_literal(r.claimed_by))
			WHEN r.state = 'leased' THEN format('If %s does not report by then, that counts as an attempt, and the message is due again after %s.', quote_literal(r.claimed_by), r.repair_delay)
			WHEN r.state = 'expired' THEN CASE
				WHEN k.is_standby THEN 'This is a standby: the primary takes it back.'
				WHEN w.runs THEN 'The background worker, or the next claim, takes it back.'
				ELSE 'The next claim takes it back; no background worker runs here, which would do so at once: call outbox.maintain().' END
				|| CASE WHEN r.is_last AND NOT r.held_back THEN ' That counts as the last attempt, and the message ends as FAILED.' ELSE '' END
			WHEN r.state = 'waiting' AND r.next_attempt_at > k.now THEN format('When all before it have ended, and not before %s, it is claimed.', outbox.shown_time(r.next_attempt_at, k.now))
			WHEN r.state = 'waiting' THEN 'When all before it have ended, it is claimed.'
			WHEN r.has_queue = false AND r.state IN ('scheduled', 'waiting') THEN NULL
			WHEN r.state = 'scheduled' AND (r.paused OR current_setting('outbox.hold', true)::boolean) THEN 'It can be claimed when its time has come and the queue goes on.'
			WHEN r.state = 'scheduled' AND r.handler IS NOT NULL THEN format('When its time has come, the handler %s handles it in the database.', r.handler)
			WHEN r.state = 'scheduled' THEN 'When its time has come, a worker can claim it.'
			WHEN r.paused OR r.has_queue = false OR current_setting('outbox.hold', true)::boolean THEN NULL
			WHEN r.state = 'due' AND k.is_standby THEN 'This is a standby: workers claim on the primary.'
			WHEN r.state = 'due' AND r.handler IS NOT NULL THEN format('The handler %s handles it in the database: see outbox.workers.', r.handler)
			WHEN r.state = 'due' THEN format('The next claims of the queue take what is due, %s: %s%s due, %s leased.%s',
				CASE WHEN r.fair_by IS NOT NULL THEN 'key by key in turn' WHEN r.priority_aging IS NOT NULL THEN 'by priority and by how long it has waited' ELSE 'longest due first' END,
				q.due, CASE q.counts WHEN 'at least' THEN ' or more' END, q.leased,
				CASE WHEN q.leased = 0 THEN ' No worker holds anything of this queue: does one run, and does it claim from this queue?' END) END)
	FROM asked k CROSS JOIN worker w LEFT JOIN its r ON true LEFT JOIN holder x ON true LEFT JOIN head h ON true LEFT JOIN blocker b ON true LEFT JOIN queue q ON true
		LEFT JOIN dead d ON true LEFT JOIN told t ON true LEFT JOIN outbox.replays y ON y.outbox_id = k.id;
END;
COMMENT ON FUNCTION outbox.explain(uuid) IS
$$Says in one paragraph why a message is not delivered: what it waits for, who holds it, what is in its way, its attempts, and what happens next; or how it ended.
outbox_id: the message; NULL gives NULL. Times are those of the session's time zone.
Errors: 55000 as outbox.status. Locks: those of reading. Cost: some look-ups, and that of outbox.status for the queue; where the message waits in its key, as many entries as are in front of it.$$;

---------------------------------------------------------------- privacy

CREATE FUNCTION outbox.protect(payload jsonb, subject text, fields text[]) RETURNS jsonb
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_protect';
COMMENT ON FUNCTION outbox.protect(jsonb, text, text[]) IS
$$Encrypts fields of a payload under the key of their subject, which it makes if there is none. Call it in the transaction that stores the result.
payload: any JSON. subject: whom the fields are about, 1 to 1024 bytes. fields: names of top-level fields, or JSON paths such as $.customer.email and $.lines[*].name; those that are not there are left out. Returns the payload with {"$enc": ...} in their places; what is protected already, for this subject and in this place, stays.
Errors: 55000 no master key; 22023 an empty subject, a path that is none, a payload of another form than a path (an object where it needs an array, say), or AUTHENTICATION_FAILED: another master key; 22004 NULL; 25006 read-only transaction.
Locks: waits for an open transaction that makes the key of the same subject, or erases it, or erases one of a 1024th of the others. Holds off the erasure of the subject to the end of the transaction.
Cost: some index look-ups, and one encryption for each field.$$;

CREATE FUNCTION outbox.reveal(payload jsonb) RETURNS jsonb
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_reveal';
COMMENT ON FUNCTION outbox.reveal(jsonb) IS
$$Decrypts the protected fields of a payload. A field whose subject was erased becomes {"$erased": true, "at": ...}.
payload: the whole payload as it was protected: a value is bound to its place.
Errors: 55000 no master key; 22023 AUTHENTICATION_FAILED: a value was changed or moved, is of another database, or the master key is another one; 22004 NULL.
Locks: none but those of reading. Cost: an index look-up for each subject, and one decryption for each field.$$;

CREATE FUNCTION outbox.erase_subject(subject text, reason text, requested_by text) RETURNS uuid
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_erase_subject';
COMMENT ON FUNCTION outbox.erase_subject(text, text, text) IS
$$Destroys the key of a subject: from the commit on no role can read the fields that were protected for it, in messages, sagas and inboxes of this database. The ciphertexts stay.
subject: as outbox.protect got it. reason, requested_by: for the certificate; they stay, so name no person. Returns the certificate, a row of outbox.erasures. A subject without a key gets a certificate, too.
Errors: 55000 no master key; 22023 an empty argument, or AUTHENTICATION_FAILED: another master key, and then nothing is destroyed; 22004 NULL; 25006 read-only transaction.
Locks: waits for open transactions that protect fields of the subject; with an open erasure, who protects fields of this subject, or of a 1024th of all others, waits for it.
Cost: some index look-ups, and one entry for each message of the subject.$$;

CREATE FUNCTION outbox.reveal_of(payload jsonb, sids uuid[]) RETURNS jsonb
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_reveal_of';
COMMENT ON FUNCTION outbox.reveal_of(jsonb, uuid[]) IS
$$Of subject_report(): as outbox.reveal, but only fields under these keys; what cannot be revealed stays as it is.
Errors: 55000 no master key; 22004 NULL. Locks: those of reading. Cost: as outbox.reveal.$$;

CREATE FUNCTION outbox.subject_hash(subject text) RETURNS bytea
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_subject_hash';
COMMENT ON FUNCTION outbox.subject_hash(text) IS
$$The keyed hash under which the tables have a subject.
Errors: 55000 no master key, or nothing was protected yet; 22023 an empty subject, or AUTHENTICATION_FAILED: another master key; 22004 NULL. Locks: those of reading. Cost: one look-up.$$;

CREATE FUNCTION outbox.rewrapped_key(wrapped bytea, key_id text, subject_hash bytea, sid uuid) RETURNS bytea
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_rewrapped_key';
COMMENT ON FUNCTION outbox.rewrapped_key(bytea, text, bytea, uuid) IS
$$Of rotate_master_key(): a wrapped key, wrapped by the current master key. subject_hash, sid: NULL for the key of hashes.
NULL if wrapped or key_id is. Errors: 55000 no master key; 22023 AUTHENTICATION_FAILED: the former master key is not at hand, or the wrapped key was changed. Locks: none. Cost: a decryption and an encryption.$$;

CREATE FUNCTION outbox.master_key_id() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_master_key_id';
COMMENT ON FUNCTION outbox.master_key_id() IS
$$The id of the current master key: a hash, which tells nothing of the key.
Errors: 55000 no master key. Locks: none. Cost: looks whether the file has changed.$$;

CREATE FUNCTION outbox.master_key_problem() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_master_key_problem';
COMMENT ON FUNCTION outbox.master_key_problem() IS
$$Of check(): why there is no master key; NULL = there is one. No errors. Locks: none. Cost: as outbox.master_key_id.$$;

CREATE FUNCTION outbox.lineage() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_lineage';
COMMENT ON FUNCTION outbox.lineage() IS
$$Of check(): the cluster, the database and the timeline; NULL on a standby. No errors, no locks, no cost.$$;

CREATE FUNCTION outbox.certified_erasure(certificate jsonb) RETURNS jsonb
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_certified_erasure';
COMMENT ON FUNCTION outbox.certified_erasure(jsonb) IS
$$Of export_erasures(): the certificate with hash_key, the id of the key of hashes, and mac, an HMAC-SHA-256 of the rest under that key. Databases with the same key can exchange erasures.
certificate: an object. Errors: 22004 NULL; 22023 no object, or AUTHENTICATION_FAILED: another master key; 55000 no master key, or nothing was protected yet. Locks: those of reading. Cost: one look-up.$$;

CREATE FUNCTION outbox.rotate_master_key() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	UPDATE outbox.subject_hash_key h SET wrapped = outbox.rewrapped_key(h.wrapped, h.key_id, NULL, NULL), key_id = outbox.master_key_id()
	WHERE h.key_id <> outbox.master_key_id();
	WITH rewrapped AS (
		UPDATE outbox.subject_keys k SET wrapped = outbox.rewrapped_key(k.wrapped, k.key_id, k.subject_hash, k.sid), key_id = outbox.master_key_id()
		WHERE k.key_id <> outbox.master_key_id()
		RETURNING 1
	), counted AS (
		SELECT count(*) AS keys FROM rewrapped)
	SELECT c.keys FROM counted c CROSS JOIN LATERAL outbox.record_event('KEY_ROTATED', detail => jsonb_build_object('keys', c.keys, 'key_id', outbox.master_key_id())) e;
END;
COMMENT ON FUNCTION outbox.rotate_master_key() IS
$$Wraps the keys of all subjects, and that of hashes, by the current master key, the first one of its source; the former ones must be there, too, until it has committed. Returns how many keys of subjects it wrapped. Protected values do not change.
Errors: 55000 no master key; 22023 AUTHENTICATION_FAILED: a former master key is not at hand, or a wrapped key was changed, and then nothing is changed; 40001 in REPEATABLE READ and above, if keys are erased meanwhile.
Locks: producers and readers do not wait for it; erasures do. Cost: reads outbox.subject_keys, and updates each row under another master key.$$;

CREATE FUNCTION outbox.export_erasures() RETURNS SETOF jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	SELECT outbox.certified_erasure(jsonb_build_object('format', 'outbox erasure 1', 'certificate', e.certificate, 'subject_hash', encode(e.subject_hash, 'hex'),
		'sid', e.sid, 'reason', e.reason, 'requested_by', e.requested_by, 'erased_by', e.erased_by, 'erased_at', e.erased_at, 'messages', e.messages, 'seal_no', e.seal_no))
	FROM outbox.erasures e
	ORDER BY e.erased_at, e.certificate;
END;
COMMENT ON FUNCTION outbox.export_erasures() IS
$$The certificates of all erasures, one a row, oldest first, for outbox.reapply_erasures after a restore. Keep them where a restore does not reach. They name no subject. Each has a mac under the key of hashes: what was changed, or made up, is not applied.
Errors: 55000 no master key; 22023 AUTHENTICATION_FAILED: another master key; neither where there is no erasure. Locks: those of reading. Cost: reads outbox.erasures.$$;

CREATE FUNCTION outbox.reapply_erasures(certificates jsonb[]) RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_reapply_erasures';
COMMENT ON FUNCTION outbox.reapply_erasures(jsonb[]) IS
$$After a restore: destroys the keys that were destroyed before, and that the backup has brought back. check() warns until it was called once.
certificates: what outbox.export_erasures has returned; those that are known do no harm; an empty array says that there are none. Returns how many keys it destroyed.
Errors: 55000 no master key; 22023 a certificate of another database, or one that was changed or made up, or AUTHENTICATION_FAILED: another master key; 22004 NULL; 25006 read-only transaction. After an error nothing is changed.
Locks: as outbox.erase_subject, of all those subjects. Cost: some index look-ups a certificate.$$;

CREATE FUNCTION outbox.subject_report(subject text)
RETURNS TABLE (sid uuid, outbox_id uuid, queue text, event_type text, created_at timestamptz, payload jsonb, headers jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH sids AS MATERIALIZED (
		SELECT array_agg(s.sid) AS list FROM outbox.subjects s WHERE s.subject_hash = (SELECT outbox.subject_hash(subject_report.subject))
	)
	SELECT m.sid, m.outbox_id, f.queue, f.event_type, f.created_at, outbox.reveal_of(f.payload, sids.list), f.headers
	FROM sids CROSS JOIN LATERAL unnest(sids.list) k(sid) JOIN outbox.subject_messages m ON m.sid = k.sid
	LEFT JOIN LATERAL (
		SELECT g.queue, g.event_type, g.created_at, g.payload, g.headers FROM outbox.messages g WHERE g.outbox_id = m.outbox_id LIMIT 1) f ON true
	ORDER BY m.outbox_id, m.sid
	-- no limit; it is asked for in any case, so that another master key is an error where nothing is found
	LIMIT (SELECT CASE WHEN outbox.subject_hash(subject_report.subject) IS NULL THEN 0::bigint END);
END;
COMMENT ON FUNCTION outbox.subject_report(text) IS
$$The messages that have fields of a subject, with these fields in plain text, and those of others as they are stored; what was erased as outbox.reveal shows it. One row for each message and key; none for messages that were retired.
subject: as outbox.protect got it.
Errors: 55000 no master key; 22023 an empty subject, or AUTHENTICATION_FAILED: another master key; 22004 NULL; 55000 where nothing was protected yet.
Locks: those of reading. Cost: an index look-up a message.$$;

CREATE FUNCTION outbox.check_privacy(deep boolean)
RETURNS TABLE (severity text, object text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH state AS MATERIALIZED (
		SELECT k.key_id, k.lineage, outbox.master_key_problem() AS problem FROM outbox.subject_hash_key k
	), used AS MATERIALIZED (
		-- not asked for, and not by the planner, where there is none
		SELECT s.key_id, s.lineage, s.problem, CASE WHEN s.problem IS NULL THEN outbox.master_key_id() END AS current_id FROM state s
	)
	SELECT 'error', 'outbox.master_key_file', 'there is no master key, so nothing can be protected, revealed or erased: ' || u.problem
	FROM used u WHERE u.problem IS NOT NULL
	UNION ALL
	SELECT 'warning', 'outbox.subject_keys', 'the current master key is another one than the one that wraps the keys: see outbox.rotate_master_key()'
	FROM used u WHERE u.key_id <> u.current_id
	UNION ALL
	SELECT 'warning', 'outbox.subject_keys', k.keys || ' keys are wrapped by a former master key: see outbox.rotate_master_key()'
	FROM used u CROSS JOIN LATERAL (SELECT count(*) AS keys FROM outbox.subject_keys s WHERE s.key_id <> u.current_id) k
	WHERE deep AND u.key_id = u.current_id AND k.keys > 0
	UNION ALL
	SELECT 'warning', 'outbox.erasures', 'the database was restored, copied or promoted, so erasures may be missing: see outbox.reapply_erasures()'
	FROM used u WHERE u.lineage <> outbox.lineage();
END;
COMMENT ON FUNCTION outbox.check_privacy(boolean) IS
$$What check() asks of protected fields, once there are any: whether there is a master key, whether it was rotated to the end, and whether erasures were applied after a restore. deep: also each key.
No errors. Locks: those of reading. Cost: one look-up; deep: reads outbox.subject_keys.$$;

CREATE FUNCTION outbox.check(deep boolean DEFAULT false)
RETURNS TABLE (severity text, object text, problem text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
	WITH leaves AS (
		SELECT i.inhparent AS parent, c.oid, c.relname, c.relkind, pg_get_expr(c.relpartbound, c.oid) AS bound
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass)
	), contract AS (
		-- what the contracts over the core consist of: extensions outbox_... that require it
		SELECT m.classid, m.objid
		FROM pg_extension core
		JOIN pg_depend r ON r.refclassid = 'pg_extension'::regclass AND r.refobjid = core.oid AND r.classid = 'pg_extension'::regclass
		JOIN pg_extension e ON e.oid = r.objid AND starts_with(e.extname::text, 'outbox_')
		JOIN pg_depend m ON m.refclassid = 'pg_extension'::regclass AND m.refobjid = e.oid AND m.deptype = 'e'
		WHERE core.extname = 'outbox'
	), ours AS (
		SELECT c.oid, c.relkind, c.relname, c.relacl, c.relowner, c.relrowsecurity, c.relpersistence, true AS is_core
		FROM pg_class c
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v') OR c.oid IN (SELECT l.oid FROM leaves l)
		UNION ALL
		SELECT c.oid, c.relkind, c.relname, c.relacl, c.relowner, c.relrowsecurity, c.relpersistence, false
		FROM pg_class c
		WHERE c.relkind IN ('r', 'p', 'v', 'S') AND c.oid IN (SELECT m.objid FROM contract m WHERE m.classid = 'pg_class'::regclass)
	), ledger AS (
		-- the parents, their leaves, leaves that were detached or archived, what a contract remembers, and of sagas what happened
		SELECT o.oid FROM ours o
		WHERE o.relkind IN ('r', 'p') AND CASE WHEN o.is_core THEN o.relname ~ '^(messages|attempts|events)(_|$)'
			ELSE pg_get_userbyid(o.relowner) <> 'outbox_saga_owner' OR o.relname = 'audit_log' END
		UNION
		SELECT 'outbox.seals'::regclass::oid
		UNION
		SELECT l.oid FROM leaves l
		UNION
		SELECT c.oid FROM pg_class c
		WHERE c.relkind = 'r' AND pg_get_userbyid(c.relowner) = 'outbox_owner' AND c.relname ~ '^(messages|attempts|events)_p[0-9]{8}(_[0-9]{4})?$'
	), guards(kind, bits) AS (
		-- pg_trigger.tgtype: 1 row, 2 before, 4 insert, 8 delete, 16 update, 32 truncate
		VALUES ('UPDATE and DELETE', 1 | 2 | 8 | 16), ('TRUNCATE', 2 | 32)
	), wanted_triggers(oid, function, bits, kind) AS (
		SELECT l.oid, 'outbox.append_only()'::regprocedure, g.bits, g.kind FROM ledger l CROSS JOIN guards g
		UNION ALL
		SELECT p.oid, 'outbox.append_only()'::regprocedure, g.bits, g.kind
		FROM (VALUES ('outbox.subjects'::regclass::oid), ('outbox.erasures'::regclass::oid)) p(oid) CROSS JOIN guards g
		UNION ALL
		VALUES ('outbox.pending'::regclass::oid, 'outbox.append_only()'::regprocedure, 2 | 32, 'TRUNCATE'),
			('outbox.pending'::regclass::oid, 'outbox.pending_changed()'::regprocedure, 1 | 4 | 8 | 16, 'INSERT, UPDATE and DELETE'),
			('outbox.pending'::regclass::oid, 'outbox.pending_changed()'::regprocedure, 1 | 2 | 16, 'UPDATE (BEFORE)'),
			('outbox.queues'::regclass::oid, 'outbox.merge_queue()'::regprocedure, 1 | 2 | 4, 'INSERT'),
			('outbox.seals'::regclass::oid, 'outbox.seal_recorded()'::regprocedure, 1 | 4, 'INSERT')
	), wanted_tables(oid, shape) AS (
		SELECT l.oid, p.relname::text FROM leaves l JOIN pg_class p ON p.oid = l.parent
		UNION ALL
		SELECT c.oid, c.relname::text
		FROM pg_class c
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'
			AND c.relname IN ('queues', 'pending', 'idempotency_keys', 'key_numbers', 'key_marks', 'replays', 'dead', 'retired_numbers', 'rate_spending',
				'subject_hash_key', 'subject_keys', 'subjects', 'erasures', 'subject_messages')
	), grants(object, owner, acl, is_core) AS (
		SELECT o.oid::regclass::text, o.relowner, o.relacl, o.is_core FROM ours o
		UNION ALL
		SELECT o.oid::regclass::text || '.' || quote_ident(a.attname), o.relowner, a.attacl, o.is_core
		FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid WHERE a.attacl IS NOT NULL
		UNION ALL
		SELECT p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)), p.pronamespace = 'outbox'::regnamespace
		FROM pg_proc p
		WHERE p.pronamespace = 'outbox'::regnamespace OR p.oid IN (SELECT m.objid FROM contract m WHERE m.classid = 'pg_proc'::regclass)
		UNION ALL
		SELECT 'schema ' || quote_ident(n.nspname), n.nspowner, n.nspacl, n.oid = 'outbox'::regnamespace
		FROM pg_namespace n
		WHERE n.oid = 'outbox'::regnamespace OR n.oid IN (SELECT m.objid FROM contract m WHERE m.classid = 'pg_namespace'::regclass)
		UNION ALL
		SELECT 'type ' || t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner)), t.typnamespace = 'outbox'::regnamespace
		FROM pg_type t
		WHERE (t.typtype IN ('e', 'd') OR EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c'))
			AND (t.typnamespace = 'outbox'::regnamespace OR t.oid IN (SELECT m.objid FROM contract m WHERE m.classid = 'pg_type'::regclass))
		UNION ALL
		-- what the partitions to come will be granted
		SELECT 'default privileges of outbox_owner', d.defaclrole, d.defaclacl, true
		FROM pg_default_acl d WHERE pg_get_userbyid(d.defaclrole) = 'outbox_owner'
	)
	SELECT 'error', w.oid::regclass::text, 'no trigger on ' || w.kind || ' that calls ' || w.function::text || ', is its own and is ENABLE ALWAYS'
	FROM wanted_triggers w
	WHERE NOT EXISTS (
		-- Not the clone of the parent's: that goes when the leaf is detached.
		SELECT 1 FROM pg_trigger t
		WHERE t.tgrelid = w.oid AND t.tgfoid = w.function AND t.tgenabled = 'A' AND t.tgtype = w.bits
			AND t.tgqual IS NULL AND t.tgattr = ''::int2vector AND t.tgparentid = 0)
	UNION ALL
	SELECT 'error', f.oid::regprocedure::text, 'is not the library''s: ' || CASE f.proname WHEN 'key_digest' THEN 'the outbox makes other digests' ELSE 'its triggers guard nothing' END
	FROM pg_proc f JOIN pg_language l ON l.oid = f.prolang
	WHERE f.oid IN ('outbox.append_only()'::regprocedure, 'outbox.merge_queue()'::regprocedure, 'outbox.pending_changed()'::regprocedure, 'outbox.seal_recorded()'::regprocedure,
			'outbox.key_digest(text, text)'::regprocedure)
		AND (l.lanname <> 'c' OR f.prosrc <> 'outbox_' || f.proname)
	UNION ALL
	SELECT 'error', t.partrelid::regclass::text, 'has no DEFAULT partition: what belongs to no other can be neither stored nor delivered'
	FROM pg_partitioned_table t
	WHERE t.partrelid IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) AND t.partdefid = 0
	UNION ALL
	SELECT DISTINCT 'error', o.oid::regclass::text,
		coalesce('the foreign key ' || quote_ident(k.conname) || ' of ' || k.conrelid::regclass::text,
			'the foreign trigger ' || quote_ident(t.tgname)) || ': functions that meet it refuse to work'
	FROM ours o JOIN pg_trigger t ON t.tgrelid = o.oid LEFT JOIN pg_constraint k ON k.oid = t.tgconstraint AND k.contype = 'f'
	WHERE o.is_core AND (k.oid IS NOT NULL OR NOT t.tgisinternal) AND NOT EXISTS (
		SELECT 1 FROM wanted_triggers w WHERE w.oid = o.oid AND w.function = t.tgfoid AND w.bits = t.tgtype)
	UNION ALL
	SELECT 'error', o.oid::regclass::text, 'the foreign trigger ' || quote_ident(t.tgname)
	FROM ours o JOIN pg_trigger t ON t.tgrelid = o.oid
	WHERE NOT o.is_core AND NOT t.tgisinternal AND t.tgfoid <> 'outbox.append_only()'::regprocedure
		AND t.tgfoid NOT IN (SELECT m.objid FROM contract m WHERE m.classid = 'pg_proc'::regclass)
	UNION ALL
	SELECT 'error', o.oid::regclass::text, 'the rule ' || quote_ident(r.rulename) || CASE WHEN o.is_core THEN ': functions that meet it refuse to work' ELSE '' END
	FROM ours o JOIN pg_rewrite r ON r.ev_class = o.oid
	WHERE r.rulename <> '_RETURN'
	UNION ALL
	SELECT 'error', o.oid::regclass::text, 'row level security' || CASE WHEN o.is_core THEN ': functions that meet it refuse to work' ELSE '' END
	FROM ours o WHERE o.relrowsecurity
	UNION ALL
	SELECT 'error', o.oid::regclass::text, 'is UNLOGGED: a crash empties it'
	FROM ours o WHERE o.relpersistence = 'u'
	UNION ALL
	SELECT 'error', 'type outbox.attempt_state', 'has the state ' || quote_literal(e.enumlabel) || ', which is none of a finished try'
	FROM pg_enum e
	WHERE e.enumtypid = 'outbox.attempt_state'::regtype AND e.enumlabel NOT IN ('DISPATCHED', 'FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE')
	UNION ALL
	SELECT 'error', g.object, a.privilege_type || ' is granted to ' || CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
	FROM grants g CROSS JOIN LATERAL aclexplode(g.acl) a
	WHERE a.grantee <> g.owner
		AND (a.grantee = 0 OR a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES', 'CREATE'))
	UNION ALL
	SELECT DISTINCT 'error', g.object, 'not owned by outbox_owner'
	FROM grants g WHERE g.is_core AND pg_get_userbyid(g.owner) <> 'outbox_owner'
	UNION ALL
	SELECT 'error', 'role ' || quote_ident(r.rolname), 'can log in, is a superuser, or has CREATEROLE or BYPASSRLS'
	FROM pg_roles r
	WHERE (r.rolname IN ('outbox_owner', 'outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor', 'outbox_privacy', 'outbox_lookup')
			OR r.oid IN (SELECT g.owner FROM grants g WHERE NOT g.is_core))
		AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolbypassrls)
	UNION ALL
	SELECT 'error', 'role ' || m.roleid::regrole::text, m.member::regrole::text || ' is a member and may write its tables'
	FROM pg_auth_members m
	WHERE pg_get_userbyid(m.roleid) = 'outbox_owner' OR m.roleid IN (SELECT o.relowner FROM ours o WHERE NOT o.is_core AND o.relkind = 'r')
	UNION ALL
	SELECT DISTINCT 'error', 'role ' || quote_ident(r.rolname), 'is a member of ' || quote_ident(w.rolname) || ' and may write every table'
	FROM grants g CROSS JOIN LATERAL aclexplode(g.acl) a
	JOIN pg_roles r ON r.oid = a.grantee AND NOT r.rolsuper
	JOIN pg_roles w ON w.oid <> r.oid AND (w.rolsuper OR w.rolname = 'pg_write_all_data') AND pg_has_role(r.oid, w.oid, 'MEMBER')
	UNION ALL
	SELECT 'error', 'schema ' || quote_ident(n.nspname), 'is the renamed schema of extension outbox: nothing works before ALTER SCHEMA '
		|| quote_ident(n.nspname) || ' RENAME TO outbox'
	FROM pg_namespace n WHERE n.oid = 'outbox'::regnamespace AND n.nspname <> 'outbox'
	UNION ALL
	SELECT 'error', w.oid::regclass::text, p.problem
	FROM wanted_tables w, outbox.table_problems(w.oid, w.shape) p
	WHERE EXISTS (SELECT 1 FROM pg_namespace n WHERE n.oid = 'outbox'::regnamespace AND n.nspname = 'outbox')
	UNION ALL
	SELECT 'error', o.oid::regclass::text, 'no valid primary key'
	FROM ours o
	WHERE (NOT o.is_core OR o.relname IN ('retention', 'seals', 'seal_marks')) AND o.relkind = 'r'
		AND NOT EXISTS (SELECT 1 FROM pg_index x WHERE x.indrelid = o.oid AND x.indisprimary AND x.indisvalid AND x.indisready)
	UNION ALL
	SELECT 'error', l.oid::regclass::text, 'no partition of ' || p.parent::regclass::text || ' has the same bounds'
	FROM leaves l, (VALUES ('outbox.messages'::regclass::oid), ('outbox.attempts'::regclass::oid), ('outbox.events'::regclass::oid)) p(parent)
	WHERE NOT EXISTS (SELECT 1 FROM leaves o WHERE o.parent = p.parent AND o.bound = l.bound)
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(q.queue), 'its validator ' || q.validator || '(jsonb, jsonb, text) does not exist: nothing can be enqueued'
	FROM outbox.queues q
	WHERE q.validator IS NOT NULL AND NOT EXISTS (
		SELECT 1 FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
		WHERE ARRAY[n.nspname, f.proname]::text[] = parse_ident(q.validator, false)
			AND f.proargtypes = '3802 3802 25'::oidvector	-- jsonb, jsonb, text
			AND f.prorettype = 'text'::regtype AND NOT f.proretset AND f.prokind = 'f')
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(q.queue), 'its validator ' || q.validator || '(jsonb, jsonb, text) belongs to '
		|| quote_ident(pg_get_userbyid(f.proowner)) || ' and was set when it belonged to ' || quote_ident(q.validator_owner) || ': nothing can be enqueued'
	FROM outbox.queues q
	JOIN pg_proc f ON f.proargtypes = '3802 3802 25'::oidvector AND pg_get_userbyid(f.proowner) <> q.validator_owner
	JOIN pg_namespace n ON n.oid = f.pronamespace AND ARRAY[n.nspname, f.proname]::text[] = parse_ident(q.validator, false)
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(q.queue), 'its handler ' || q.handler || '(outbox.claimed) does not exist: nothing is handled'
	FROM outbox.queues q
	WHERE q.handler IS NOT NULL AND NOT EXISTS (
		SELECT 1 FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
		WHERE ARRAY[n.nspname, f.proname]::text[] = parse_ident(q.handler, false)
			AND f.pronargs = 1 AND f.proargtypes[0] = 'outbox.claimed'::regtype
			AND f.prorettype = 'void'::regtype AND NOT f.proretset AND f.prokind = 'f')
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(q.queue), 'its handler ' || q.handler || '(outbox.claimed) '
		|| CASE WHEN pg_get_userbyid(f.proowner) <> q.handler_owner
			THEN 'belongs to ' || quote_ident(pg_get_userbyid(f.proowner)) || ' and was set when it belonged to ' || quote_ident(q.handler_owner)
			ELSE 'may not be executed by its owner ' || quote_ident(q.handler_owner) END || ': nothing is handled'
	FROM outbox.queues q
	JOIN pg_proc f ON f.pronargs = 1 AND f.proargtypes[0] = 'outbox.claimed'::regtype
		AND (pg_get_userbyid(f.proowner) <> q.handler_owner OR NOT has_function_privilege(f.proowner, f.oid, 'EXECUTE'))
	JOIN pg_namespace n ON n.oid = f.pronamespace AND ARRAY[n.nspname, f.proname]::text[] = parse_ident(q.handler, false)
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(q.queue), 'its dead_letter_queue ' || quote_ident(q.dead_letter_queue) || CASE WHEN d.queue IS NULL
			THEN ' does not exist: its dead letters are not told' ELSE ' has one itself, ' || quote_ident(d.dead_letter_queue) || ': notices that die are told, too' END
	FROM outbox.queues q LEFT JOIN outbox.queues d ON d.queue = q.dead_letter_queue
	WHERE q.dead_letter_queue IS NOT NULL AND (d.queue IS NULL OR d.dead_letter_queue IS NOT NULL)
	UNION ALL
	SELECT 'error', 'queue ' || quote_ident(l.queue), count(*) || ' messages are neither pending nor ended, the first of '
		|| min(l.created_at) || ': outbox.lost_messages() shows them, outbox.restore_pending() puts them back'
		|| CASE WHEN EXISTS (SELECT 1 FROM outbox.queues q WHERE q.queue = l.queue) THEN '' ELSE ' once the queue exists' END
	FROM outbox.lost_messages() l
	WHERE deep GROUP BY l.queue
	UNION ALL
	SELECT 'warning', 'outbox.messages', 'has ' || count(*) || ' partitions, each of which costs the first call of a session some of its time: see outbox.partition_interval and outbox.retention'
	FROM leaves l WHERE l.parent = 'outbox.messages'::regclass HAVING count(*) > 500
	UNION ALL
	SELECT 'warning', 'outbox.hold', 'is on: nothing is claimed, and no worker is notified'
	WHERE current_setting('outbox.hold', true)::boolean
	UNION ALL
	SELECT 'warning', 'background worker', CASE w.state
			WHEN 'not loaded' THEN 'none: the library is not in shared_preload_libraries, so call outbox.maintain()'
			WHEN 'off' THEN 'none: outbox.worker is off, so call outbox.maintain()'
			ELSE CASE (SELECT o.state FROM outbox.worker_status() o WHERE o.kind = 'worker' AND o.database = current_database())
				WHEN 'not wanted' THEN 'none: outbox.databases does not name this database'
				WHEN 'other version' THEN 'none: the library does not serve this version of the extension: use ALTER EXTENSION outbox UPDATE'
				WHEN 'no free slot' THEN 'none: no background worker slot is free: increase max_worker_processes'
				ELSE 'none runs for this database' END END
	FROM outbox.worker_status() w
	WHERE w.kind = 'launcher' AND NOT EXISTS (
		SELECT 1 FROM outbox.worker_status() o WHERE o.kind = 'worker' AND o.database = current_database() AND o.pid IS NOT NULL)
	UNION ALL
	SELECT 'warning', 'background ' || w.kind, w.state || ': ' || w.last_error
	FROM outbox.worker_status() w
	WHERE w.database = current_database() AND w.failures > 0 AND w.last_error IS NOT NULL
	UNION ALL
	-- what is in the tables, if the owner may read it
	SELECT r.severity, r.object, r.problem
	FROM (SELECT true AS may WHERE NOT EXISTS (
		SELECT 1 FROM ours o WHERE o.is_core AND o.relkind IN ('r', 'p') AND pg_get_userbyid(o.relowner) <> 'outbox_owner')) owner
	CROSS JOIN LATERAL (SELECT * FROM outbox.check_rows(deep) UNION ALL SELECT * FROM outbox.check_privacy(deep)) r
	ORDER BY 1, 2, 3;
END;
COMMENT ON FUNCTION outbox.check(boolean) IS
$$Reports problems: triggers of the outbox that are missing, replaced or not ENABLE ALWAYS, on detached and archived partitions too; indexes and checks that are missing or altered; foreign triggers, foreign keys, rules, row level security and deferrable or excluding constraints; states beyond those of a finished try; unlogged tables; write grants, also by default, anything granted to PUBLIC, members of those who may write, other owners, roles with more rights than CREATE EXTENSION accepts; partitions without their counterpart; pending rows without a message or without a queue; no background worker, and why, or one in trouble; rows in DEFAULT; 10 GB without a retention; an archive_schema that is missing or not granted; keys that a dead message blocks; limits that expired leases use up; protected fields without a master key, under a former one, or restored without their erasures. The contracts, extensions outbox_... that require this one, are checked as well: their tables must be append-only. No row = nothing found.
deep: also messages that are neither pending nor ended, ordered keys of which no message can be claimed, or two, and messages without a turn. severity: error, or warning if no guarantee is broken. object: what has the problem. problem: the problem. Errors: 42501 when queues was given to another owner. No locks but those of reading; reads catalogs, queues, and the first 100 rows of pending of each queue; deep: as outbox.lost_messages(), and all of pending.$$;

---------------------------------------------------------------- owner and rights

DO LANGUAGE plpgsql $owner$
DECLARE
	statement text;
BEGIN
	FOR statement IN
		SELECT pg_catalog.format('ALTER TABLE %s OWNER TO outbox_owner', c.oid::pg_catalog.regclass)
		FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'outbox'::pg_catalog.regnamespace AND c.relkind IN ('r', 'p')
		UNION ALL
		SELECT pg_catalog.format('ALTER VIEW %s OWNER TO outbox_owner', c.oid::pg_catalog.regclass)
		FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'outbox'::pg_catalog.regnamespace AND c.relkind = 'v'
		UNION ALL
		SELECT pg_catalog.format('ALTER SEQUENCE %s OWNER TO outbox_owner', c.oid::pg_catalog.regclass)
		FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'outbox'::pg_catalog.regnamespace AND c.relkind = 'S'
		UNION ALL
		SELECT pg_catalog.format('ALTER ROUTINE %s OWNER TO outbox_owner', p.oid::pg_catalog.regprocedure)
		FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'outbox'::pg_catalog.regnamespace
	LOOP
		EXECUTE statement;
	END LOOP;
END
$owner$;
ALTER TYPE outbox.attempt_state OWNER TO outbox_owner;
ALTER TYPE outbox.claimed OWNER TO outbox_owner;
ALTER SCHEMA outbox OWNER TO outbox_owner;

REVOKE ALL ON SCHEMA outbox FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA outbox FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA outbox FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA outbox FROM PUBLIC;
REVOKE ALL ON TYPE outbox.attempt_state, outbox.claimed FROM PUBLIC;

GRANT USAGE ON SCHEMA outbox TO outbox_ingest, outbox_executor, outbox_operator, outbox_readonly, outbox_auditor, outbox_privacy;
GRANT USAGE ON TYPE outbox.attempt_state TO outbox_executor, outbox_operator, outbox_readonly, outbox_auditor;
-- Whoever makes a handler names it.
GRANT USAGE ON TYPE outbox.claimed TO outbox_ingest, outbox_executor, outbox_operator;

GRANT EXECUTE ON FUNCTION
	outbox.enqueue,
	outbox.enqueue_batch,
	outbox.enqueue_and_claim
TO outbox_ingest;

GRANT EXECUTE ON FUNCTION
	outbox.enqueue_and_claim,
	outbox.claim(text, integer, interval, text[], interval, integer[]),
	outbox.complete(uuid, uuid, text, outbox.attempt_state, text, text, text, text, integer, interval),
	outbox.complete_batch(text, uuid[], uuid[], outbox.attempt_state[], text[], text[], text[], text[], integer[], interval[]),
	outbox.complete_and_claim(text, uuid[], uuid[], outbox.attempt_state[], text[], text[], text[], text[], integer[], interval[], integer, interval, text[], integer[]),
	outbox.renew(text, uuid[], uuid[], interval),
	outbox.release(text, uuid[], uuid[], interval),
	outbox.repair_expired_leases(integer, text, text[])
TO outbox_executor;
GRANT EXECUTE ON PROCEDURE outbox.wait_for_work(interval, text[]) TO outbox_executor;

GRANT EXECUTE ON FUNCTION
	outbox.create_queue,
	outbox.alter_queue,
	outbox.drop_queue(text), outbox.pause(text), outbox.resume(text), outbox.take_number(text, text),
	outbox.cancel(uuid, text, boolean), outbox.unblock(text, text), outbox.break_lease(uuid, text), outbox.reschedule(uuid, timestamptz, integer),
	outbox.replay(uuid, timestamptz), outbox.acknowledge_dead(uuid, text),
	outbox.cancel_batch(uuid[], text, boolean), outbox.replay_batch(uuid[], timestamptz), outbox.checked_batch(text, integer, text, boolean), outbox.confirmed(text, text),
	outbox.cancel_up_to, outbox.replay_up_to,
	outbox.cancel_many, outbox.replay_many, outbox.purge,
	outbox.backoff(text, integer, uuid), outbox.maintain(), outbox.set_retention(interval, interval, text), outbox.state_diagram(), outbox.check(boolean), outbox.reset_stats(),
	outbox.restore_pending()
TO outbox_operator;

GRANT EXECUTE ON FUNCTION outbox.seal() TO outbox_operator;
GRANT EXECUTE ON FUNCTION outbox.verify_seals(bigint, bigint), outbox.prove(uuid), outbox.export_seals(bigint, bigint), outbox.seal_leaves(bigint)
TO outbox_operator, outbox_auditor;
GRANT SELECT ON outbox.seals, outbox.seal_marks, outbox.seal_floor TO outbox_operator, outbox_readonly, outbox_auditor;

GRANT EXECUTE ON FUNCTION outbox.queue_stats(), outbox.worker_status(), outbox.prometheus(), outbox.lost_messages(), outbox.queue_status(text),
	outbox.message_facts(uuid), outbox.message_body(uuid), outbox.last_attempt(uuid), outbox.explain(uuid), outbox.message_events(uuid, timestamptz)
TO outbox_operator, outbox_readonly, outbox_auditor;
-- A view's functions are called with the rights of its reader. Without USAGE on the schema a member
-- calls these in views alone, which decide what they are asked.
GRANT EXECUTE ON FUNCTION outbox.queue_status(text), outbox.message_facts(uuid), outbox.last_attempt(uuid) TO outbox_lookup;
GRANT SELECT ON outbox.status, outbox.operational_status, outbox.dead_letters, outbox.blocked_keys, outbox.stats, outbox.workers
TO outbox_operator, outbox_readonly, outbox_auditor;
GRANT SELECT ON outbox.queues, outbox.messages, outbox.pending, outbox.attempts, outbox.events, outbox.dead, outbox.key_marks, outbox.retention
TO outbox_operator, outbox_readonly, outbox_auditor;

-- Who reveals and erases is apart from who operates, and from who audits.
GRANT EXECUTE ON FUNCTION outbox.protect(jsonb, text, text[]) TO outbox_ingest, outbox_privacy;
GRANT EXECUTE ON FUNCTION outbox.reveal(jsonb), outbox.erase_subject(text, text, text), outbox.subject_report(text), outbox.export_erasures(),
	outbox.reapply_erasures(jsonb[])
TO outbox_privacy;
GRANT EXECUTE ON FUNCTION outbox.rotate_master_key(), outbox.master_key_id() TO outbox_operator;
GRANT SELECT ON outbox.subjects, outbox.erasures, outbox.subject_messages TO outbox_privacy;
GRANT SELECT ON outbox.erasures TO outbox_auditor;

---------------------------------------------------------------- the first partitions

-- So that no message of a new outbox goes to DEFAULT. Not in a restore, whose partitions are in
-- the dump: whatever reads it, a dump begins by setting these for its session.
DO LANGUAGE plpgsql $partitions$
DECLARE
	leaf pg_catalog.regclass;
BEGIN
	IF (SELECT pg_catalog.bool_and(s.source = 'session') FROM pg_catalog.pg_settings s
		WHERE s.name IN ('xmloption', 'statement_timeout', 'idle_in_transaction_session_timeout')) THEN
		RETURN;
	END IF;
	PERFORM FROM outbox.maintain();
	-- What is a member of the extension would not be in a dump.
	FOR leaf IN
		SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent IN ('outbox.messages'::pg_catalog.regclass, 'outbox.attempts'::pg_catalog.regclass, 'outbox.events'::pg_catalog.regclass)
			AND pg_catalog.pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT'
	LOOP
		EXECUTE pg_catalog.format('ALTER EXTENSION outbox DROP TABLE %s', leaf);
	END LOOP;
END
$partitions$;
