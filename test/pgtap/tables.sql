-- Shapes of tables and views: every column with type, nullability and default, keys,
-- checks, indexes, partitions, triggers.
SET client_min_messages = warning;
SET intervalstyle = 'postgres';
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS outbox;
SELECT plan(53);

CREATE FUNCTION pg_temp.columns(relation regclass) RETURNS TABLE (name text, type text, not_null boolean, value text) LANGUAGE sql AS $$
	SELECT attname::text, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
	FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped ORDER BY attnum
$$;
CREATE FUNCTION pg_temp.view_columns(relation regclass) RETURNS TABLE (name text, type text) LANGUAGE sql AS $$
	SELECT name, type FROM pg_temp.columns(relation)
$$;

SELECT results_eq(
	$$SELECT relname::text COLLATE "C", relkind::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind NOT IN ('i', 't', 'c', 'I') AND relname !~ '_p[0-9]{8}$' ORDER BY 1$$,
	$$VALUES ('attempts' COLLATE "C", 'p'), ('attempts_default', 'r'), ('blocked_keys', 'v'), ('dead', 'r'), ('dead_letters', 'v'), ('erasures', 'r'), ('events', 'p'), ('events_default', 'r'), ('idempotency_keys', 'r'), ('key_marks', 'r'), ('key_numbers', 'r'), ('messages', 'p'),
		('messages_default', 'r'), ('operational_status', 'v'), ('pending', 'r'), ('queues', 'r'), ('rate_spending', 'r'), ('replays', 'r'), ('retention', 'r'), ('retired_numbers', 'r'), ('seal_floor', 'S'), ('seal_marks', 'r'), ('seals', 'r'), ('sequences', 'v'), ('stats', 'v'), ('status', 'v'),
		('subject_hash_key', 'r'), ('subject_keys', 'r'), ('subject_messages', 'r'), ('subjects', 'r'), ('workers', 'v')$$,
	'the tables and views');

-- Tables.
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.queues')$$, $$VALUES
	('queue', 'text', true, NULL),
	('max_attempts', 'integer', false, '20'),
	('lease', 'interval', true, '''00:00:30''::interval'),
	('backoff_base', 'interval', true, '''00:00:01''::interval'),
	('backoff_cap', 'interval', true, '''00:15:00''::interval'),
	('backoff_jitter', 'real', true, '0.2'),
	('repair_delay', 'interval', true, '''00:00:01''::interval'),
	('ordering', 'text', true, '''none''::text'),
	('on_dead_head', 'text', true, '''continue''::text'),
	('validator', 'text', false, NULL),
	('paused', 'boolean', true, 'false'),
	('max_in_flight', 'integer', false, NULL),
	('created_at', 'timestamp with time zone', true, 'clock_timestamp()'),
	('validator_owner', 'text', false, NULL),
	('payload_kind', 'text', true, '''object''::text'),
	('max_releases', 'integer', false, NULL),
	('rate_limit', 'double precision', false, NULL),
	('rate_burst', 'integer', false, NULL),
	('max_in_flight_per_key', 'integer', false, NULL),
	('fair_by', 'text', false, NULL),
	('priority_aging', 'interval', false, NULL),
	('handler', 'text', false, NULL),
	('handler_timeout', 'interval', true, '''00:00:30''::interval'),
	('handler_owner', 'text', false, NULL),
	('dead_letter_queue', 'text', false, NULL),
	('protect', 'jsonb', false, NULL),
	('reveal_on_claim', 'boolean', true, 'false'),
	('audit_events', 'boolean', true, 'false')$$, 'columns of queues');
PREPARE messages_columns AS VALUES
	('outbox_id', 'uuid', true, NULL),
	('queue', 'text', true, NULL),
	('event_id', 'uuid', true, NULL),
	('event_type', 'text', true, NULL),
	('aggregate_type', 'text', false, NULL),
	('aggregate_id', 'text', false, NULL),
	('partition_key', 'text', false, NULL),
	('sequence_id', 'bigint', false, NULL),
	('idempotency_key', 'text', false, NULL),
	('routing_key', 'text', false, NULL),
	('priority', 'smallint', true, NULL),
	('max_attempts', 'integer', false, NULL),
	('payload', 'jsonb', false, NULL),
	('headers', 'jsonb', true, NULL),
	('replay_of', 'uuid', false, NULL),
	('created_at', 'timestamp with time zone', true, NULL),
	('payload_bytes', 'bytea', false, NULL),
	('content_type', 'text', false, NULL);
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.messages')$$, 'messages_columns', 'columns of messages');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.messages_default')$$, 'messages_columns', 'columns of messages_default');
PREPARE attempts_columns AS VALUES
	('outbox_id', 'uuid', true, NULL),
	('attempt_no', 'integer', true, NULL),
	('state', 'outbox.attempt_state', true, NULL),
	('worker_id', 'text', false, NULL),
	('lease_token', 'uuid', false, NULL),
	('claimed_at', 'timestamp with time zone', false, NULL),
	('completed_at', 'timestamp with time zone', false, NULL),
	('reference', 'text', false, NULL),
	('response_code', 'text', false, NULL),
	('error_code', 'text', false, NULL),
	('error_message', 'text', false, NULL),
	('latency_ms', 'integer', false, NULL),
	('recorded_by', 'text', false, NULL),
	('created_at', 'timestamp with time zone', true, 'clock_timestamp()');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.attempts')$$, 'attempts_columns', 'columns of attempts');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.attempts_default')$$, 'attempts_columns', 'columns of attempts_default');
PREPARE events_columns AS VALUES
	('event_id', 'uuid', true, NULL),
	('event', 'text', true, NULL),
	('at', 'timestamp with time zone', true, NULL),
	('queue', 'text', false, NULL),
	('worker_id', 'text', false, NULL),
	('actor', 'text', true, NULL),
	('outbox_ids', 'uuid[]', false, NULL),
	('attempt_nos', 'integer[]', false, NULL),
	('lease_expires_at', 'timestamp with time zone', false, NULL),
	('detail', 'jsonb', true, NULL);
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.events')$$, 'events_columns', 'columns of events');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.events_default')$$, 'events_columns', 'columns of events_default');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.pending')$$, $$VALUES
	('outbox_id', 'uuid', true, NULL),
	('next_attempt_at', 'timestamp with time zone', true, 'clock_timestamp()'),
	('created_at', 'timestamp with time zone', true, 'clock_timestamp()'),
	('attempt_count', 'integer', true, '0'),
	('release_count', 'integer', true, '0'),
	('priority', 'smallint', true, '0'),
	('held_back', 'boolean', true, 'false'),
	('queue', 'text', true, NULL),
	('partition_key', 'text', false, NULL),
	('sequence_id', 'bigint', false, NULL),
	('max_attempts', 'integer', false, NULL),
	('fair_key', 'bigint', false, NULL),
	('claimed_by', 'text', false, NULL),
	('claimed_at', 'timestamp with time zone', false, NULL),
	('lease_token', 'uuid', false, NULL),
	('lease_expires_at', 'timestamp with time zone', false, NULL)$$, 'columns of pending');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.idempotency_keys')$$, $$VALUES
	('digest', 'bytea', true, NULL),
	('queue', 'text', true, NULL),
	('outbox_id', 'uuid', true, NULL)$$, 'columns of idempotency_keys');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.key_numbers')$$, $$VALUES
	('digest', 'bytea', true, NULL),
	('upto', 'bigint', true, NULL),
	('queue', 'text', true, NULL),
	('partition_key', 'text', true, NULL),
	('outbox_id', 'uuid', true, NULL)$$, 'columns of key_numbers');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.key_marks')$$, $$VALUES
	('mark_id', 'uuid', true, NULL),
	('digest', 'bytea', true, NULL),
	('queue', 'text', true, NULL),
	('partition_key', 'text', true, NULL),
	('kind', 'text', true, NULL),
	('sequence_id', 'bigint', true, NULL),
	('outbox_id', 'uuid', false, NULL),
	('created_at', 'timestamp with time zone', true, NULL)$$, 'columns of key_marks');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.replays')$$, $$VALUES
	('outbox_id', 'uuid', true, NULL),
	('replay_id', 'uuid', true, NULL),
	('created_at', 'timestamp with time zone', true, NULL)$$, 'columns of replays');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.dead')$$, $$VALUES
	('outbox_id', 'uuid', true, NULL),
	('queue', 'text', true, NULL),
	('died_at', 'timestamp with time zone', true, NULL),
	('acknowledged_at', 'timestamp with time zone', false, NULL),
	('acknowledged_by', 'text', false, NULL),
	('reason', 'text', false, NULL)$$, 'columns of dead');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.rate_spending')$$, $$VALUES
	('queue', 'text', true, NULL),
	('spent_until', 'bigint', true, NULL),
	('started_at', 'timestamp with time zone', true, NULL)$$, 'columns of rate_spending');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.retired_numbers')$$, $$VALUES
	('outbox_id', 'uuid', true, NULL),
	('sequence_id', 'bigint', true, NULL)$$, 'columns of retired_numbers');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.retention')$$, $$VALUES
	('one', 'boolean', true, 'true'),
	('keep', 'interval', false, NULL),
	('dead_letters', 'interval', false, NULL),
	('archive_schema', 'text', false, NULL)$$, 'columns of retention');

-- Views.
SELECT results_eq($$SELECT * FROM pg_temp.view_columns('outbox.sequences')$$, $$VALUES
	('queue', 'text'), ('partition_key', 'text'), ('next_sequence_id', 'bigint')$$, 'columns of sequences');
SELECT results_eq($$SELECT * FROM pg_temp.view_columns('outbox.dead_letters')$$, $$VALUES
	('outbox_id', 'uuid'), ('queue', 'text'), ('event_id', 'uuid'), ('event_type', 'text'), ('aggregate_type', 'text'), ('aggregate_id', 'text'),
	('partition_key', 'text'), ('sequence_id', 'bigint'), ('created_at', 'timestamp with time zone'), ('died_at', 'timestamp with time zone'),
	('error_code', 'text'), ('error_message', 'text'), ('response_code', 'text'), ('attempts', 'integer'), ('worker_id', 'text'), ('recorded_by', 'text'),
	('payload', 'jsonb'), ('headers', 'jsonb'), ('replay_of', 'uuid'), ('payload_bytes', 'bytea'), ('content_type', 'text'),
	('acknowledged_at', 'timestamp with time zone'), ('acknowledged_by', 'text'), ('reason', 'text')$$, 'columns of dead_letters');
SELECT results_eq($$SELECT * FROM pg_temp.view_columns('outbox.operational_status')$$, $$VALUES
	('outbox_id', 'uuid'), ('queue', 'text'), ('priority', 'smallint'), ('partition_key', 'text'), ('sequence_id', 'bigint'), ('state', 'text'),
	('attempt_count', 'integer'), ('max_attempts', 'integer'), ('release_count', 'integer'), ('next_attempt_at', 'timestamp with time zone'), ('created_at', 'timestamp with time zone'),
	('claimed_by', 'text'), ('claimed_at', 'timestamp with time zone'), ('lease_expires_at', 'timestamp with time zone'), ('lease_age_seconds', 'double precision'),
	('time_to_due', 'interval'), ('last_attempt_no', 'integer'), ('last_attempt_state', 'outbox.attempt_state'), ('last_error_code', 'text'),
	('last_error_message', 'text'), ('last_attempt_at', 'timestamp with time zone')$$, 'columns of operational_status');
SELECT results_eq($$SELECT * FROM pg_temp.view_columns('outbox.status')$$, $$VALUES
	('queue', 'text'), ('paused', 'boolean'), ('pending_count', 'bigint'), ('due_unleased_count', 'bigint'), ('leased_count', 'bigint'),
	('expired_lease_count', 'bigint'), ('scheduled_count', 'bigint'), ('waiting_count', 'bigint'), ('dead_count', 'bigint'), ('oldest_due_age_seconds', 'double precision'),
	('oldest_pending_age_seconds', 'double precision'), ('counts', 'text'), ('counted_at', 'timestamp with time zone')$$, 'columns of status');
SELECT results_eq($$SELECT * FROM pg_temp.view_columns('outbox.blocked_keys')$$, $$VALUES
	('queue', 'text'), ('partition_key', 'text'), ('outbox_id', 'uuid'), ('sequence_id', 'bigint'), ('reason', 'text'),
	('since', 'timestamp with time zone'), ('behind', 'bigint')$$, 'columns of blocked_keys');
SELECT results_eq($$SELECT * FROM pg_temp.view_columns('outbox.workers')$$, $$VALUES
	('kind', 'text'), ('database', 'text'), ('pid', 'integer'), ('state', 'text'), ('since', 'timestamp with time zone'), ('next_wake', 'timestamp with time zone'),
	('last_error', 'text'), ('last_error_at', 'timestamp with time zone'), ('failures', 'integer'), ('starts', 'bigint'), ('wakeups', 'bigint'),
	('notified', 'bigint'), ('repaired', 'bigint'), ('unrepaired', 'bigint'), ('unrecorded', 'bigint')$$, 'columns of workers');

-- Times have a zone, everywhere.
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
	WHERE relnamespace = 'outbox'::regnamespace AND atttypid IN ('timestamp'::regtype, 'time'::regtype, 'date'::regtype, 'timetz'::regtype)$$, 'no time without a zone');

-- Partitioning: by range of the id; the parents carry no index and no constraint.
SELECT results_eq($$SELECT partrelid::regclass::text COLLATE "C", pg_get_partkeydef(partrelid), partdefid::regclass::text FROM pg_partitioned_table
	WHERE partrelid::regclass::text LIKE 'outbox.%' ORDER BY 1$$,
	$$VALUES ('outbox.attempts' COLLATE "C", 'RANGE (outbox_id)', 'outbox.attempts_default'), ('outbox.events', 'RANGE (event_id)', 'outbox.events_default'),
		('outbox.messages', 'RANGE (outbox_id)', 'outbox.messages_default')$$,
	'messages, attempts and events are partitioned by the range of their ids');
SELECT is_empty($$SELECT indexrelid::regclass FROM pg_index WHERE indrelid IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass)
	UNION ALL SELECT conname::text::regclass FROM pg_constraint WHERE conrelid IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) AND contype <> 'n'$$,
	'the parents carry no index and no constraint');

-- Keys, checks and indexes.
CREATE FUNCTION pg_temp.constraints(relation regclass) RETURNS TABLE (name text, definition text) LANGUAGE sql AS $$
	SELECT conname::text COLLATE "C", pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = relation AND contype <> 'n' AND convalidated ORDER BY 1
$$;
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.seals')$$, $$VALUES
	('seal_no', 'bigint', true, NULL),
	('from_at', 'timestamp with time zone', true, NULL),
	('to_at', 'timestamp with time zone', true, NULL),
	('messages', 'bigint', true, NULL),
	('attempts', 'bigint', true, NULL),
	('events', 'bigint', true, NULL),
	('root', 'bytea', true, NULL),
	('parts', 'jsonb', true, NULL),
	('previous', 'bytea', false, NULL),
	('hash', 'bytea', true, NULL),
	('signature', 'bytea', false, NULL),
	('key_id', 'text', false, NULL)$$, 'columns of seals');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.seal_marks')$$, $$VALUES
	('at', 'timestamp with time zone', true, NULL),
	('next_xid', 'xid8', true, NULL)$$, 'columns of seal_marks');

CREATE FUNCTION pg_temp.indexes(relation regclass) RETURNS TABLE (name text, definition text) LANGUAGE sql AS $$
	SELECT relname::text COLLATE "C", regexp_replace(pg_get_indexdef(c.oid), '^CREATE (UNIQUE )?INDEX \S+ ON \S+ ', '\1')
	FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = relation AND indisvalid AND indisready ORDER BY 1
$$;
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.queues')$$, $$VALUES
	('queues_backoff', 'CHECK (((backoff_base >= ''00:00:00''::interval) AND (backoff_cap >= ''00:00:00''::interval)))'),
	('queues_dead_letter_queue', 'CHECK (((dead_letter_queue <> ''''::text) AND (dead_letter_queue <> queue)))'),
	('queues_fair_by', 'CHECK ((fair_by = ''partition_key''::text))'),
	('queues_handler', 'CHECK (((handler <> ''''::text) AND ((handler IS NULL) = (handler_owner IS NULL))))'),
	('queues_handler_timeout', 'CHECK ((handler_timeout > ''00:00:00''::interval))'),
	('queues_jitter', 'CHECK (((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision)))'),
	('queues_lease', 'CHECK ((lease > ''00:00:00''::interval))'),
	('queues_max_attempts', 'CHECK ((max_attempts >= 1))'),
	('queues_max_in_flight', 'CHECK ((max_in_flight >= 1))'),
	('queues_max_in_flight_per_key', 'CHECK ((max_in_flight_per_key >= 1))'),
	('queues_max_releases', 'CHECK ((max_releases >= 0))'),
	('queues_name_length', 'CHECK (((octet_length(queue) >= 1) AND (octet_length(queue) <= 63)))'),
	('queues_on_dead_head', 'CHECK ((on_dead_head = ANY (ARRAY[''continue''::text, ''block''::text])))'),
	('queues_ordering', 'CHECK ((ordering = ANY (ARRAY[''none''::text, ''numbered''::text, ''fifo''::text])))'),
	('queues_payload_kind', 'CHECK ((payload_kind = ANY (ARRAY[''object''::text, ''any''::text])))'),
	('queues_pkey', 'PRIMARY KEY (queue)'),
	('queues_priority_aging', 'CHECK ((priority_aging > ''00:00:00''::interval))'),
	('queues_protect', 'CHECK ((jsonb_typeof(protect) = ''object''::text))'),
	('queues_rate_burst', 'CHECK ((rate_burst >= 1))'),
	('queues_rate_limit', 'CHECK (((rate_limit > (0)::double precision) AND (rate_limit < ''Infinity''::double precision)))'),
	('queues_repair_delay', 'CHECK ((repair_delay >= ''00:00:00''::interval))'),
	('queues_validator', 'CHECK (((validator <> ''''::text) AND ((validator IS NULL) = (validator_owner IS NULL))))')$$, 'constraints of queues');
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.messages_default')$$, $$VALUES
	('messages_default_pkey', 'PRIMARY KEY (outbox_id)'),
	('messages_one_payload', 'CHECK (((payload IS NULL) <> (payload_bytes IS NULL)))')$$,
	'constraints of messages_default');
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.attempts_default')$$, $$VALUES
	('attempts_completed_at', 'CHECK (((completed_at IS NOT NULL) = (state = ANY (ARRAY[''DISPATCHED''::outbox.attempt_state, ''FAILED''::outbox.attempt_state]))))'),
	('attempts_default_pkey', 'PRIMARY KEY (outbox_id, attempt_no)'),
	('attempts_number', 'CHECK ((attempt_no >= 1))')$$, 'constraints of attempts_default');
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.events_default')$$, $$VALUES ('events_default_pkey', 'PRIMARY KEY (event_id)')$$, 'constraints of events_default');
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.pending')$$, $$VALUES
	('pending_held_back_has_number', 'CHECK (((NOT held_back) OR (sequence_id IS NOT NULL)))'),
	('pending_lease_is_whole', 'CHECK ((num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) = ANY (ARRAY[0, 4])))'),
	('pending_pkey', 'PRIMARY KEY (outbox_id)'),
	('pending_priority', 'CHECK (((priority >= 0) AND (priority <= 15)))'),
	('pending_release_count', 'CHECK ((release_count >= 0))'),
	('pending_times_are_finite', 'CHECK ((isfinite(next_attempt_at) AND isfinite(created_at) AND isfinite(claimed_at) AND isfinite(lease_expires_at)))')$$, 'constraints of pending: the lease columns are all NULL or all set');
SELECT results_eq($$SELECT * FROM pg_temp.indexes('outbox.attempts_default')$$, $$VALUES
	('attempts_default_failed', 'USING btree (outbox_id) WHERE (state = ''FAILED''::outbox.attempt_state)'),
	('attempts_default_one_terminal_per_outbox', 'UNIQUE USING btree (outbox_id) WHERE (state = ANY (ARRAY[''DISPATCHED''::outbox.attempt_state, ''FAILED''::outbox.attempt_state]))'),
	('attempts_default_pkey', 'UNIQUE USING btree (outbox_id, attempt_no)')$$, 'indexes of attempts_default');
SELECT results_eq($$SELECT * FROM pg_temp.indexes('outbox.pending')$$, $$VALUES
	('pending_due', 'USING btree (queue, priority DESC, GREATEST(next_attempt_at, lease_expires_at)) WHERE (NOT held_back)'),
	('pending_fair', 'USING btree (priority DESC, fair_key, next_attempt_at) WHERE ((fair_key IS NOT NULL) AND (NOT held_back) AND (lease_expires_at IS NULL))'),
	('pending_fair_lease', 'USING btree (fair_key) WHERE ((fair_key < 0) AND (lease_expires_at IS NOT NULL))'),
	('pending_held_back', 'USING btree (queue) WHERE held_back'),
	('pending_key_sequence', 'UNIQUE USING btree (outbox.key_digest(queue, partition_key), sequence_id) WHERE (sequence_id IS NOT NULL)'),
	('pending_lease', 'USING btree (lease_expires_at, claimed_by) WHERE ((claimed_by IS NOT NULL) OR (claimed_at IS NOT NULL) OR (lease_expires_at IS NOT NULL))'),
	('pending_pkey', 'UNIQUE USING btree (outbox_id)')$$, 'indexes of pending');
SELECT results_eq($$SELECT relname::text COLLATE "C", d.definition FROM unnest(ARRAY['dead', 'idempotency_keys', 'key_marks', 'key_numbers', 'rate_spending', 'replays', 'retired_numbers']) relname,
		LATERAL pg_temp.constraints(('outbox.' || relname)::regclass) d ORDER BY 1$$,
	$$VALUES ('dead' COLLATE "C", 'CHECK ((num_nulls(acknowledged_at, acknowledged_by, reason) = ANY (ARRAY[0, 3])))'), ('dead', 'PRIMARY KEY (outbox_id)'),
		('idempotency_keys', 'PRIMARY KEY (digest)'), ('key_marks', 'CHECK ((kind = ANY (ARRAY[''drained''::text, ''gap''::text, ''blocked''::text])))'), ('key_marks', 'PRIMARY KEY (mark_id)'), ('key_numbers', 'PRIMARY KEY (digest, upto)'), ('rate_spending', 'PRIMARY KEY (queue)'), ('replays', 'PRIMARY KEY (outbox_id)'), ('retired_numbers', 'PRIMARY KEY (outbox_id)')$$,
	'keys of the tables beside');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.subject_hash_key')$$, $$VALUES
	('one', 'boolean', true, 'true'), ('key_id', 'text', true, NULL), ('wrapped', 'bytea', true, NULL), ('lineage', 'text', true, NULL), ('created_at', 'timestamp with time zone', true, NULL)$$, 'columns of subject_hash_key');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.subject_keys')$$, $$VALUES
	('subject_hash', 'bytea', true, NULL), ('sid', 'uuid', true, NULL), ('key_id', 'text', true, NULL), ('wrapped', 'bytea', true, NULL), ('created_at', 'timestamp with time zone', true, NULL)$$, 'columns of subject_keys');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.subjects')$$, $$VALUES
	('sid', 'uuid', true, NULL), ('subject_hash', 'bytea', true, NULL), ('created_at', 'timestamp with time zone', true, NULL)$$, 'columns of subjects');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.erasures')$$, $$VALUES
	('certificate', 'uuid', true, NULL), ('subject_hash', 'bytea', true, NULL), ('sid', 'uuid', false, NULL), ('reason', 'text', true, NULL), ('requested_by', 'text', true, NULL), ('erased_by', 'text', true, NULL),
	('erased_at', 'timestamp with time zone', true, NULL), ('messages', 'bigint', true, NULL), ('seal_no', 'bigint', false, NULL)$$, 'columns of erasures');
SELECT results_eq($$SELECT * FROM pg_temp.columns('outbox.subject_messages')$$, $$VALUES ('sid', 'uuid', true, NULL), ('outbox_id', 'uuid', true, NULL)$$, 'columns of subject_messages');
SELECT results_eq($$SELECT relname::text COLLATE "C", d.* FROM unnest(ARRAY['erasures', 'subject_hash_key', 'subject_keys', 'subject_messages', 'subjects']) relname, LATERAL pg_temp.indexes(('outbox.' || relname)::regclass) d ORDER BY 1, 2$$, $$VALUES
	('erasures' COLLATE "C", 'erasures_pkey', 'UNIQUE USING btree (certificate)'), ('erasures', 'erasures_sid', 'USING btree (sid) WHERE (sid IS NOT NULL)'), ('erasures', 'erasures_subject', 'USING btree (subject_hash)'),
	('subject_hash_key', 'subject_hash_key_pkey', 'UNIQUE USING btree (one)'), ('subject_keys', 'subject_keys_pkey', 'UNIQUE USING btree (subject_hash)'), ('subject_keys', 'subject_keys_sid', 'UNIQUE USING btree (sid)'),
	('subject_messages', 'subject_messages_message', 'USING btree (outbox_id)'), ('subject_messages', 'subject_messages_pkey', 'UNIQUE USING btree (sid, outbox_id)'),
	('subjects', 'subjects_pkey', 'UNIQUE USING btree (sid)'), ('subjects', 'subjects_subject', 'USING btree (subject_hash)')$$, 'indexes of what belongs to protected fields');
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.seals')$$, $$VALUES
	('seals_from_at_key', 'UNIQUE (from_at)'),
	('seals_pkey', 'PRIMARY KEY (seal_no)'),
	('seals_previous_key', 'UNIQUE NULLS NOT DISTINCT (previous)'),
	('seals_to_at_key', 'UNIQUE (to_at)'),
	('seals_window', 'CHECK (((seal_no > 0) AND (from_at < to_at)))')$$, 'constraints of seals');
SELECT results_eq($$SELECT * FROM pg_temp.constraints('outbox.seal_marks')$$, $$VALUES
	('seal_marks_pkey', 'PRIMARY KEY (at)')$$, 'constraints of seal_marks');
-- The comment on the index of terminal attempts states the invariant.
SELECT matches(obj_description('outbox.attempts_default_one_terminal_per_outbox'::regclass, 'pg_class'), 'at most one terminal attempt',
	'the index of terminal attempts says what it guarantees');
-- Names of queues compare bytewise, whatever the database's collation.
SELECT is_empty($$SELECT attrelid::regclass FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
	WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v') AND attname = 'queue' AND attcollation <> '"C"'::regcollation$$, 'queue columns are COLLATE "C"');

-- Triggers: all of them, and all ENABLE ALWAYS.
SELECT results_eq($$SELECT tgrelid::regclass::text COLLATE "C", tgname::text COLLATE "C", regexp_replace(pg_get_triggerdef(oid), '^CREATE TRIGGER \S+ (.*) ON \S+ (.*)$', '\1 \2'), tgenabled::text
	FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname !~ '_p[0-9]{8}$') ORDER BY 1, 2$$, $$VALUES
	('outbox.attempts' COLLATE "C", 'append_only' COLLATE "C", 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.attempts', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.attempts_default', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.attempts_default', 'append_only_leaf', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.attempts_default', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.erasures', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.erasures', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.events', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.events', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.events_default', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.events_default', 'append_only_leaf', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.events_default', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.messages', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.messages', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.messages_default', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.messages_default', 'append_only_leaf', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.messages_default', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.pending', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.pending', 'pending_changed', 'AFTER INSERT OR DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.pending_changed()', 'A'),
	('outbox.pending', 'pending_changing', 'BEFORE UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.pending_changed()', 'A'),
	('outbox.queues', 'merge_queue', 'BEFORE INSERT FOR EACH ROW EXECUTE FUNCTION outbox.merge_queue()', 'A'),
	('outbox.seals', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.seals', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.seals', 'seal_recorded', 'AFTER INSERT FOR EACH ROW EXECUTE FUNCTION outbox.seal_recorded()', 'A'),
	('outbox.subjects', 'append_only', 'BEFORE DELETE OR UPDATE FOR EACH ROW EXECUTE FUNCTION outbox.append_only()', 'A'),
	('outbox.subjects', 'append_only_truncate', 'BEFORE TRUNCATE FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only()', 'A')$$, 'the triggers');

SELECT is_empty($$SELECT table_name, column_name FROM information_schema.columns
	WHERE table_schema = 'outbox' AND data_type ~ '^(date|time)' AND data_type <> 'timestamp with time zone'$$, 'every time has its zone (B10)');

-- What is there from the start.
SELECT results_eq('SELECT queue, max_attempts, paused FROM outbox.queues', $$VALUES ('default' COLLATE "C", 20, false)$$, 'the queue default exists');
SELECT is_empty('SELECT 1 FROM outbox.messages UNION ALL SELECT 1 FROM outbox.attempts UNION ALL SELECT 1 FROM outbox.pending UNION ALL SELECT 1 FROM outbox.events', 'and nothing else');
-- No foreign key, rule or row security stands in the way of direct access.
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p')
	AND (relrowsecurity OR relforcerowsecurity OR relhasrules OR EXISTS (SELECT 1 FROM pg_constraint WHERE contype = 'f' AND c.oid IN (conrelid, confrelid)))$$,
	'no rules, row security or foreign keys');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p') AND relpersistence <> 'p'$$, 'all tables are logged');

-- An index that goes by the collation of the database is wrong after an upgrade of the C library.
SELECT is_empty($$SELECT x.indexrelid::regclass FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
	WHERE c.relnamespace = 'outbox'::regnamespace AND 'pg_catalog."default"'::regcollation = ANY (x.indcollation::oid[])$$,
	'no index depends on the collation of the database');

SELECT * FROM finish();
ROLLBACK;
