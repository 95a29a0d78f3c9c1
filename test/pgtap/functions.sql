-- Shapes of functions: argument names, types and defaults, result columns, exactly as the interface says; how they run;
-- the type and its casts. rights.sql lists all of them, each with one signature. The calls themselves: test/sql.
SET client_min_messages = warning;
SET intervalstyle = 'postgres';
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS outbox;
SELECT * FROM no_plan();

CREATE FUNCTION pg_temp.arguments(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_get_function_arguments(oid), ' AND ') FROM pg_proc
	WHERE pronamespace = 'outbox'::regnamespace AND proname = name
$$;
CREATE FUNCTION pg_temp.result(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_get_function_result(oid), ' AND ') FROM pg_proc
	WHERE pronamespace = 'outbox'::regnamespace AND proname = name
$$;

-- Producer.
SELECT is(pg_temp.arguments('enqueue'),
	'event_type text, payload jsonb DEFAULT NULL::jsonb, queue text DEFAULT ''default''::text, aggregate_type text DEFAULT NULL::text, aggregate_id text DEFAULT NULL::text, '
	'partition_key text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, event_id uuid DEFAULT NULL::uuid, headers jsonb DEFAULT ''{}''::jsonb, '
	'routing_key text DEFAULT NULL::text, priority integer DEFAULT 0, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, '
	'max_attempts integer DEFAULT NULL::integer, payload_bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT NULL::text', 'arguments of enqueue');
SELECT is(pg_temp.result('enqueue'), 'TABLE(outbox_id uuid, sequence_id bigint, created boolean)', 'result of enqueue');
SELECT is(pg_temp.arguments('enqueue_batch'), 'queue text, messages jsonb', 'arguments of enqueue_batch');
SELECT is(pg_temp.result('enqueue_batch'), 'TABLE(ordinality integer, outbox_id uuid, sequence_id bigint, created boolean)', 'result of enqueue_batch');
SELECT is(pg_temp.arguments('enqueue_and_claim'),
	'worker_id text, event_type text, payload jsonb DEFAULT NULL::jsonb, queue text DEFAULT ''default''::text, aggregate_type text DEFAULT NULL::text, aggregate_id text DEFAULT NULL::text, '
	'partition_key text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, event_id uuid DEFAULT NULL::uuid, headers jsonb DEFAULT ''{}''::jsonb, '
	'routing_key text DEFAULT NULL::text, priority integer DEFAULT 0, max_attempts integer DEFAULT NULL::integer, lease interval DEFAULT NULL::interval, payload_bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT NULL::text',
	'arguments of enqueue_and_claim');
SELECT is(pg_temp.result('enqueue_and_claim'),
	'TABLE(outbox_id uuid, sequence_id bigint, created boolean, lease_token uuid, lease_expires_at timestamp with time zone)', 'result of enqueue_and_claim');

-- Worker.
SELECT is(pg_temp.arguments('claim'),
	'worker_id text, batch_size integer DEFAULT 10, lease interval DEFAULT NULL::interval, queues text[] DEFAULT NULL::text[], wait interval DEFAULT ''00:00:00''::interval, '
	'queue_weights integer[] DEFAULT NULL::integer[]',
	'arguments of claim');
SELECT is(pg_temp.result('claim'),
	'TABLE(outbox_id uuid, queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text, partition_key text, sequence_id bigint, '
	'idempotency_key text, routing_key text, priority integer, payload jsonb, headers jsonb, attempt_count integer, max_attempts integer, '
	'created_at timestamp with time zone, lease_token uuid, lease_expires_at timestamp with time zone, payload_bytes bytea, content_type text)', 'result of claim');
SELECT is(pg_temp.arguments('complete'),
	'outbox_id uuid, lease_token uuid, worker_id text, state outbox.attempt_state, reference text DEFAULT NULL::text, response_code text DEFAULT NULL::text, '
	'error_code text DEFAULT NULL::text, error_message text DEFAULT NULL::text, latency_ms integer DEFAULT NULL::integer, retry_delay interval DEFAULT NULL::interval',
	'arguments of complete');
SELECT is(pg_temp.result('complete'),
	'TABLE(attempt_no integer, recorded outbox.attempt_state, next_attempt_at timestamp with time zone)', 'result of complete');
SELECT is(pg_temp.arguments('complete_batch'),
	'worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[], refs text[] DEFAULT NULL::text[], response_codes text[] DEFAULT NULL::text[], '
	'error_codes text[] DEFAULT NULL::text[], error_messages text[] DEFAULT NULL::text[], latencies_ms integer[] DEFAULT NULL::integer[], '
	'retry_delays interval[] DEFAULT NULL::interval[]', 'arguments of complete_batch');
SELECT is(pg_temp.result('complete_batch'),
	'TABLE(outbox_id uuid, attempt_no integer, recorded outbox.attempt_state, next_attempt_at timestamp with time zone, error text)', 'result of complete_batch');
SELECT is(pg_temp.arguments('complete_and_claim'),
	'worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[], refs text[] DEFAULT NULL::text[], response_codes text[] DEFAULT NULL::text[], '
	'error_codes text[] DEFAULT NULL::text[], error_messages text[] DEFAULT NULL::text[], latencies_ms integer[] DEFAULT NULL::integer[], '
	'retry_delays interval[] DEFAULT NULL::interval[], batch_size integer DEFAULT 10, lease interval DEFAULT NULL::interval, queues text[] DEFAULT NULL::text[], '
	'queue_weights integer[] DEFAULT NULL::integer[]',
	'arguments of complete_and_claim');
SELECT is(pg_temp.result('complete_and_claim'),
	'TABLE(kind text, outbox_id uuid, attempt_no integer, recorded outbox.attempt_state, next_attempt_at timestamp with time zone, error text, '
	'queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text, partition_key text, sequence_id bigint, '
	'idempotency_key text, routing_key text, priority integer, payload jsonb, headers jsonb, attempt_count integer, max_attempts integer, '
	'created_at timestamp with time zone, lease_token uuid, lease_expires_at timestamp with time zone, payload_bytes bytea, content_type text)', 'result of complete_and_claim');
SELECT is(pg_temp.arguments('renew'), 'worker_id text, outbox_ids uuid[], lease_tokens uuid[], lease interval DEFAULT NULL::interval', 'arguments of renew');
SELECT is(pg_temp.result('renew'), 'TABLE(outbox_id uuid, lease_expires_at timestamp with time zone, error text)', 'result of renew');
SELECT is(pg_temp.arguments('release'), 'worker_id text, outbox_ids uuid[], lease_tokens uuid[], delay interval DEFAULT ''00:00:00''::interval', 'arguments of release');
SELECT is(pg_temp.result('release'), 'TABLE(outbox_id uuid, next_attempt_at timestamp with time zone, error text)', 'result of release');
SELECT is(pg_temp.arguments('repair_expired_leases'),
	'batch_size integer DEFAULT 100, worker_id text DEFAULT ''outbox repair''::text, queues text[] DEFAULT NULL::text[]', 'arguments of repair_expired_leases');
SELECT is(pg_temp.result('repair_expired_leases'),
	'TABLE(outbox_id uuid, attempt_no integer, state outbox.attempt_state, lost_by text)', 'result of repair_expired_leases');

-- Operator. create_queue and alter_queue have the columns of outbox.queues.
CREATE FUNCTION pg_temp.settings(kept text) RETURNS text LANGUAGE sql AS $$
	SELECT 'queue text, ' || string_agg(format('%s %s DEFAULT %s', attname, t.type, CASE
			WHEN kept IS NULL THEN coalesce(pg_get_expr(adbin, adrelid), 'NULL::' || t.type)
			WHEN typcategory = 'N' AND NOT attnotnull THEN kept
			ELSE 'NULL::' || t.type END), ', ' ORDER BY attnum)
	FROM pg_attribute JOIN pg_type y ON y.oid = atttypid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum, LATERAL (SELECT format_type(atttypid, atttypmod)) t(type)
	WHERE attrelid = 'outbox.queues'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('queue', 'created_at', 'validator_owner', 'handler_owner')
$$;
SELECT is(pg_temp.arguments('create_queue'), pg_temp.settings(NULL), 'arguments of create_queue: the columns of queues, with their defaults');
SELECT is(pg_temp.arguments('alter_queue'), pg_temp.settings('''-1''::integer'), 'arguments of alter_queue: the same, each of which may be kept');
SELECT results_eq(
	$$SELECT pg_temp.arguments(name) FROM unnest(ARRAY['drop_queue', 'pause', 'resume']) name$$,
	$$VALUES ('queue text'), ('queue text'), ('queue text')$$, 'arguments of drop_queue, pause and resume');
SELECT results_eq(
	$$SELECT pg_temp.result(name) FROM unnest(ARRAY['create_queue', 'alter_queue', 'drop_queue', 'pause', 'resume']) name$$,
	$$VALUES ('void'), ('void'), ('void'), ('void'), ('void')$$, 'queue administration returns nothing');
SELECT is(pg_temp.arguments('cancel'), 'outbox_id uuid, reason text, force boolean DEFAULT false', 'arguments of cancel');
SELECT is(pg_temp.result('cancel'), 'integer', 'result of cancel');
SELECT results_eq(
	$$SELECT name, pg_temp.arguments(name), pg_temp.result(name) FROM unnest(ARRAY['cancel_batch', 'replay_batch', 'cancel_many', 'replay_many', 'purge', 'explain', 'checked_batch', 'confirmed', 'shown_time', 'cancel_up_to', 'replay_up_to', 'row_holders']) name$$,
	$$VALUES ('cancel_batch', 'outbox_ids uuid[], reason text, force boolean DEFAULT false', 'TABLE(outbox_id uuid, attempt_no integer, error text)'),
		('replay_batch', 'outbox_ids uuid[], deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'TABLE(outbox_id uuid, replay_id uuid, error text)'),
		('cancel_many', 'queue text, reason text, event_type text DEFAULT NULL::text, error_code text DEFAULT NULL::text, since timestamp with time zone DEFAULT NULL::timestamp with time zone, '
			'until timestamp with time zone DEFAULT NULL::timestamp with time zone, batch_size integer DEFAULT 1000, dry_run boolean DEFAULT true, force boolean DEFAULT false',
			'TABLE(event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)'),
		('replay_many', 'queue text, event_type text DEFAULT NULL::text, error_code text DEFAULT NULL::text, since timestamp with time zone DEFAULT NULL::timestamp with time zone, '
			'until timestamp with time zone DEFAULT NULL::timestamp with time zone, batch_size integer DEFAULT 1000, dry_run boolean DEFAULT true, again boolean DEFAULT false',
			'TABLE(event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)'),
		('purge', 'queue text, queue_again text DEFAULT NULL::text, batch_size integer DEFAULT 1000, force boolean DEFAULT false',
			'TABLE(event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)'),
		('explain', 'outbox_id uuid', 'text'), ('checked_batch', 'queue text, batch_size integer, reason text, dry_run boolean', 'integer'), ('confirmed', 'queue text, queue_again text', 'boolean'),
		('shown_time', 'at timestamp with time zone, now timestamp with time zone', 'text'),
		('cancel_up_to', 'queue text, wanted integer, reason text, event_type text, error_code text, since timestamp with time zone, until timestamp with time zone, force boolean',
			'TABLE(outbox_id uuid, event text, last_error text, outcome text)'),
		('replay_up_to', 'queue text, wanted integer, event_type text, error_code text, since timestamp with time zone, until timestamp with time zone, again boolean',
			'TABLE(outbox_id uuid, event text, last_error text, outcome text)'),
		('row_holders', 'outbox_id uuid', 'TABLE(xid xid, pid integer)')$$, 'many messages, and one');
SELECT is(pg_temp.arguments('seal'), '', 'arguments of seal');
SELECT is(pg_temp.result('seal'), 'SETOF outbox.seals', 'result of seal');
SELECT is(pg_temp.arguments('verify_seals'), 'from_seal bigint DEFAULT NULL::bigint, to_seal bigint DEFAULT NULL::bigint', 'arguments of verify_seals');
SELECT is(pg_temp.result('verify_seals'), 'TABLE(seal_no bigint, ok boolean, problem text)', 'result of verify_seals');
SELECT is(pg_temp.arguments('prove'), 'outbox_id uuid', 'arguments of prove');
SELECT is(pg_temp.result('prove'), 'jsonb', 'result of prove');
SELECT is(pg_temp.arguments('export_seals'), 'from_seal bigint DEFAULT NULL::bigint, to_seal bigint DEFAULT NULL::bigint', 'arguments of export_seals');
SELECT is(pg_temp.result('export_seals'), 'SETOF jsonb', 'result of export_seals');
SELECT is(pg_temp.arguments('seal_leaves'), 'seal_no bigint', 'arguments of seal_leaves');
SELECT is(pg_temp.result('seal_leaves'), 'TABLE("table" text, partition text, id uuid, attempt_no integer, leaf bytea)', 'result of seal_leaves');
SELECT is(pg_temp.arguments('acknowledge_dead'), 'outbox_id uuid, reason text', 'arguments of acknowledge_dead');
SELECT is(pg_temp.result('acknowledge_dead'), 'boolean', 'result of acknowledge_dead');
SELECT is(pg_temp.arguments('replay'), 'outbox_id uuid, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'arguments of replay');
SELECT is(pg_temp.result('replay'), 'uuid', 'result of replay');
SELECT is(pg_temp.arguments('backoff'), 'queue text, attempt_no integer, outbox_id uuid DEFAULT NULL::uuid', 'arguments of backoff');
SELECT is(pg_temp.result('backoff'), 'interval', 'result of backoff');
SELECT results_eq(
	$$SELECT pg_temp.arguments(name), pg_temp.result(name) FROM unnest(ARRAY['maintain', 'state_diagram', 'check']) name$$,
	$$VALUES ('', 'TABLE(action text, object text, detail text)'), ('', 'text'), ('deep boolean DEFAULT false', 'TABLE(severity text, object text, problem text)')$$,
	'maintain, state_diagram and check');
SELECT results_eq(
	$$SELECT pg_temp.arguments(name), pg_temp.result(name) FROM unnest(ARRAY['prometheus', 'reset_stats']) name$$,
	$$VALUES ('', 'text'), ('', 'void')$$, 'prometheus and reset_stats');
SELECT is(pg_temp.arguments('unblock'), 'queue text, partition_key text', 'arguments of unblock');
SELECT is(pg_temp.arguments('take_number'), 'queue text, partition_key text', 'arguments of take_number');
SELECT results_eq(
	$$SELECT prokind::text, pg_temp.arguments('wait_for_work') FROM pg_proc WHERE oid::regproc::text = 'outbox.wait_for_work'$$,
	$$VALUES ('p', 'IN max_wait interval, IN queues text[] DEFAULT NULL::text[]')$$, 'wait_for_work is a procedure');
SELECT is(pg_temp.arguments('message_events'), 'outbox_id uuid, until timestamp with time zone DEFAULT NULL::timestamp with time zone', 'arguments of message_events');
SELECT is(pg_temp.result('message_events'), 'TABLE(event_id uuid, event text, at timestamp with time zone, queue text, worker_id text, actor text, attempt_no integer, lease_expires_at timestamp with time zone, detail jsonb)',
	'result of message_events');
SELECT is(pg_temp.arguments('record_event'), 'event text, queue text DEFAULT NULL::text, outbox_ids uuid[] DEFAULT NULL::uuid[], detail jsonb DEFAULT ''{}''::jsonb',
	'arguments of record_event');
SELECT is(pg_temp.result('record_event'), 'uuid', 'result of record_event');
-- Functions under views have the columns of their view.
SELECT results_eq(
	$$SELECT pg_temp.arguments(name), pg_temp.result(name) FROM unnest(ARRAY['queue_stats', 'worker_status']) name$$,
	$$SELECT '', 'TABLE(' || string_agg(attname COLLATE "default" || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) || ')'
		FROM pg_attribute JOIN (VALUES (1, 'outbox.stats'::regclass), (2, 'outbox.workers')) v(n, view) ON attrelid = view
		WHERE attnum > 0 GROUP BY n ORDER BY n$$, 'queue_stats and worker_status');

-- Privacy.
SELECT results_eq(
	$$SELECT name, pg_temp.arguments(name), pg_temp.result(name) FROM unnest(ARRAY['protect', 'reveal', 'erase_subject', 'rotate_master_key', 'export_erasures', 'reapply_erasures', 'subject_report']) name$$,
	$$VALUES ('protect', 'payload jsonb, subject text, fields text[]', 'jsonb'), ('reveal', 'payload jsonb', 'jsonb'), ('erase_subject', 'subject text, reason text, requested_by text', 'uuid'),
		('rotate_master_key', '', 'bigint'), ('export_erasures', '', 'SETOF jsonb'), ('reapply_erasures', 'certificates jsonb[]', 'bigint'),
		('subject_report', 'subject text', 'TABLE(sid uuid, outbox_id uuid, queue text, event_type text, created_at timestamp with time zone, payload jsonb, headers jsonb)')$$, 'protected fields');
SELECT results_eq(
	$$SELECT name, pg_temp.arguments(name), pg_temp.result(name) FROM unnest(ARRAY['reveal_of', 'subject_hash', 'rewrapped_key', 'master_key_id', 'master_key_problem', 'lineage', 'certified_erasure', 'check_privacy']) name$$,
	$$VALUES ('reveal_of', 'payload jsonb, sids uuid[]', 'jsonb'), ('subject_hash', 'subject text', 'bytea'), ('rewrapped_key', 'wrapped bytea, key_id text, subject_hash bytea, sid uuid', 'bytea'),
		('master_key_id', '', 'text'), ('master_key_problem', '', 'text'), ('lineage', '', 'text'), ('certified_erasure', 'certificate jsonb', 'jsonb'), ('check_privacy', 'deep boolean', 'TABLE(severity text, object text, problem text)')$$, 'what serves them');

-- How they run. What writes is VOLATILE and PARALLEL UNSAFE; none is LEAKPROOF.
SELECT results_eq(
	$$SELECT proname::text COLLATE "C", provolatile::text, proparallel::text FROM pg_proc
		WHERE pronamespace = 'outbox'::regnamespace AND (provolatile <> 'v' OR proparallel <> 'u' OR proleakproof) ORDER BY 1$$,
	$$VALUES ('backoff' COLLATE "C", 's', 'u'), ('certified_erasure', 's', 'u'), ('check', 's', 'u'), ('check_privacy', 's', 'u'), ('check_rows', 's', 'u'), ('checked_batch', 's', 'u'), ('confirmed', 'i', 'u'), ('explain', 's', 'u'), ('export_erasures', 's', 'u'), ('key_digest', 'i', 's'), ('last_attempt', 's', 'r'), ('lineage', 's', 'u'), ('lost_messages', 's', 'u'), ('master_key_id', 's', 'u'), ('master_key_problem', 's', 'u'), ('message_body', 's', 'r'), ('message_events', 's', 's'), ('message_facts', 's', 'r'), ('queue_stats', 'v', 's'), ('queue_status', 'v', 'r'), ('reveal', 's', 'u'), ('reveal_of', 's', 'u'), ('row_holders', 's', 'u'), ('shown_time', 's', 'u'), ('state_diagram', 'i', 's'), ('subject_hash', 's', 'u'), ('subject_report', 's', 'u'), ('table_problems', 's', 'u'), ('worker_status', 'v', 's')$$,
	'what is not VOLATILE and PARALLEL UNSAFE only reads or computes');
-- Whatever runs with its owner's rights pins search_path, with pg_temp last.
SELECT is_empty(
	$$SELECT oid::regprocedure, proconfig FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND prosecdef
		AND NOT coalesce(proconfig && ARRAY['search_path=pg_catalog, pg_temp', 'search_path=pg_catalog, outbox, pg_temp'], false)$$,
	'SECURITY DEFINER functions pin search_path, pg_temp last');
SELECT is_empty(
	$$SELECT p.oid::regprocedure, lanname FROM pg_proc p JOIN pg_language l ON l.oid = prolang
		WHERE pronamespace = 'outbox'::regnamespace AND (lanname NOT IN ('c', 'sql') OR (lanname = 'sql' AND prosqlbody IS NULL))$$,
	'C, or SQL whose names were resolved when it was made');

-- The type and its casts, arrays included.
SELECT enum_has_labels('outbox', 'attempt_state', ARRAY['DISPATCHED', 'FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE'], 'labels of attempt_state');
SELECT results_eq(
	$$SELECT castsource::regtype::text COLLATE "C", castcontext::text, castmethod::text FROM pg_cast WHERE casttarget = 'outbox.attempt_state'::regtype ORDER BY 1$$,
	$$VALUES ('character varying' COLLATE "C", 'i', 'i'), ('text', 'i', 'i')$$, 'implicit casts from text and varchar, WITH INOUT');
SELECT results_eq(
	$$SELECT ARRAY['FAILED']::text[]::outbox.attempt_state[], ARRAY['FAILED']::varchar[]::outbox.attempt_state[]$$,
	$$SELECT '{FAILED}'::outbox.attempt_state[], '{FAILED}'::outbox.attempt_state[]$$, 'arrays of text and varchar are cast');
SELECT results_eq(
	$$SELECT typname::text FROM pg_type t WHERE typnamespace = 'outbox'::regnamespace AND typtype <> 'c' AND typcategory <> 'A'$$,
	$$VALUES ('attempt_state' COLLATE "C")$$, 'no other type');
-- What a handler gets: the columns that claim returns, without the lease.
SELECT is(
	(SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'outbox.claimed'::regclass AND attnum > 0),
	regexp_replace(pg_temp.result('claim'), '^TABLE\(|lease_token uuid, lease_expires_at timestamp with time zone, |\)$', '', 'g'), 'columns of claimed');

SELECT * FROM finish();
ROLLBACK;
