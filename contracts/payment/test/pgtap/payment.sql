-- outbox_payment, from the catalogue: its functions, one signature each, with names, order,
-- types, defaults and result columns as the contract says; its views and their columns;
-- owners, rights and comments. (What they do: ../sql/payment*.)
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE SCHEMA pay;
-- In a schema of its own, so that pgTAP's functions are not among those counted.
CREATE EXTENSION outbox_payment SCHEMA pay CASCADE;
SET search_path = public, pay;
SELECT plan(43);

CREATE FUNCTION pg_temp.arguments(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_get_function_arguments(oid), ' AND ') FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND proname = name
$$;
CREATE FUNCTION pg_temp.result(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_get_function_result(oid), ' AND ') FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND proname = name
$$;
CREATE FUNCTION pg_temp.columns(view regclass) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = view AND attnum > 0
$$;

-- Every function there is, each with one signature. The last five serve queue and views.
SELECT results_eq(
	$$SELECT proname::text COLLATE "C", count(*) FROM pg_proc WHERE pronamespace = 'pay'::regnamespace GROUP BY 1 ORDER BY 1$$,
	$$SELECT name COLLATE "C", 1::bigint FROM unnest(ARRAY['bump_participant_outbox_seq', 'claim_outbox_batch', 'complete_outbox_attempt', 'enqueue_payment_outbox',
		'repair_expired_leases', 'payment_outbox_validator', 'payment_outbox_follow_schema', 'payment_outbox_refuse', 'payment_outbox_pending_update',
		'payment_outbox_attempts_insert']) name ORDER BY 1$$, 'the functions, one signature each');
SELECT is(pg_temp.arguments('enqueue_payment_outbox'),
	'p_instruction_id text, p_participant_id text, p_idempotency_key text, p_rail_type text, p_payload jsonb', 'arguments of enqueue_payment_outbox');
SELECT is(pg_temp.result('enqueue_payment_outbox'),
	'TABLE(outbox_id uuid, sequence_id bigint, created_at timestamp with time zone)', 'result of enqueue_payment_outbox');
SELECT is(pg_temp.arguments('bump_participant_outbox_seq'), 'p_participant_id text', 'arguments of bump_participant_outbox_seq');
SELECT is(pg_temp.result('bump_participant_outbox_seq'), 'bigint', 'result of bump_participant_outbox_seq');
SELECT is(pg_temp.arguments('claim_outbox_batch'), 'p_batch_size integer, p_worker_id text, p_lease_seconds integer', 'arguments of claim_outbox_batch');
SELECT is(pg_temp.result('claim_outbox_batch'),
	'TABLE(outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text, payload jsonb, '
	'attempt_count integer, lease_token uuid, lease_expires_at timestamp with time zone)', 'result of claim_outbox_batch');
SELECT is(pg_temp.arguments('complete_outbox_attempt'),
	'p_outbox_id uuid, p_lease_token uuid, p_worker_id text, p_state outbox_attempt_state, p_rail_reference text DEFAULT NULL::text, p_rail_code text DEFAULT NULL::text, '
	'p_error_code text DEFAULT NULL::text, p_error_message text DEFAULT NULL::text, p_latency_ms integer DEFAULT NULL::integer, '
	'p_retry_delay_seconds integer DEFAULT NULL::integer', 'arguments of complete_outbox_attempt');
SELECT is(pg_temp.result('complete_outbox_attempt'), 'TABLE(attempt_no integer)', 'result of complete_outbox_attempt');
SELECT is(pg_temp.arguments('repair_expired_leases'), 'p_batch_size integer, p_worker_id text', 'arguments of repair_expired_leases');
SELECT is(pg_temp.result('repair_expired_leases'), 'TABLE(outbox_id uuid, attempt_no integer)', 'result of repair_expired_leases');
SELECT is(pg_temp.arguments('payment_outbox_validator') || ' ' || pg_temp.result('payment_outbox_validator'),
	'payload jsonb, headers jsonb, routing_key text text', 'payment_outbox_validator is a validator');

-- The domain, and the relations.
SELECT domain_type_is('pay', 'outbox_attempt_state', 'outbox', 'attempt_state', 'outbox_attempt_state is a domain over the core''s enum');
SELECT results_eq($$SELECT typname::text FROM pg_type WHERE typnamespace = 'pay'::regnamespace AND typtype <> 'c' AND typcategory <> 'A'$$,
	$$VALUES ('outbox_attempt_state' COLLATE "C")$$, 'no other type');
SELECT results_eq($$SELECT relname::text COLLATE "C", relkind::text FROM pg_class WHERE relnamespace = 'pay'::regnamespace ORDER BY 1$$,
	$$VALUES ('outbox_operational_status' COLLATE "C", 'v'), ('participant_outbox_sequences', 'v'), ('payment_outbox_attempts', 'v'),
		('payment_outbox_pending', 'v'), ('supervisor_outbox_status', 'v')$$, 'views, and nothing that keeps a state');
SELECT is(pg_temp.columns('payment_outbox_pending'),
	'outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text, payload jsonb, attempt_count integer, '
	'next_attempt_at timestamp with time zone, created_at timestamp with time zone, claimed_by text, lease_token uuid, lease_expires_at timestamp with time zone',
	'columns of payment_outbox_pending');
SELECT is(pg_temp.columns('payment_outbox_attempts'),
	'attempt_id uuid, outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text, payload jsonb, '
	'attempt_no integer, state outbox.attempt_state, claimed_at timestamp with time zone, completed_at timestamp with time zone, rail_reference text, rail_code text, '
	'error_code text, error_message text, latency_ms integer, created_at timestamp with time zone, worker_id text', 'columns of payment_outbox_attempts');
SELECT is(pg_temp.columns('participant_outbox_sequences'), 'participant_id text, next_sequence_id bigint', 'columns of participant_outbox_sequences');
SELECT is(pg_temp.columns('supervisor_outbox_status'),
	'pending_depth bigint, leased_count bigint, expired_lease_count bigint, due_unleased_count bigint, oldest_pending_age_seconds double precision, dlq_depth bigint, '
	'dispatched_count bigint, failed_count bigint, retryable_count bigint, zombie_requeue_count bigint', 'columns of supervisor_outbox_status');
SELECT is(pg_temp.columns('outbox_operational_status'),
	'outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, rail_type text, attempt_count integer, next_attempt_at timestamp with time zone, '
	'created_at timestamp with time zone, claimed_by text, claimed_at timestamp with time zone, lease_expires_at timestamp with time zone, last_attempt_no integer, '
	'last_attempt_state outbox.attempt_state, last_error_code text, last_error_message text, last_attempt_at timestamp with time zone, derived_state text, '
	'lease_age_seconds double precision, time_to_due interval', 'columns of outbox_operational_status');

-- How they run.
SELECT results_eq($$SELECT proname::text COLLATE "C" FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND prosecdef ORDER BY 1$$,
	$$VALUES ('bump_participant_outbox_seq' COLLATE "C"), ('claim_outbox_batch'), ('complete_outbox_attempt'), ('enqueue_payment_outbox'), ('payment_outbox_follow_schema'), ('repair_expired_leases')$$,
	'the functions of the contract run with their owner''s rights');
SELECT is_empty($$SELECT oid::regprocedure, proconfig FROM pg_proc p WHERE pronamespace = 'pay'::regnamespace
		AND proconfig IS DISTINCT FROM '{"search_path=pg_catalog, pg_temp"}' AND NOT (prosqlbody IS NOT NULL AND NOT prosecdef)$$,
	'whatever looks names up when it runs pins search_path, pg_temp last');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND proname <> 'payment_outbox_validator' AND (provolatile <> 'v' OR proparallel <> 'u')$$,
	'what writes is VOLATILE and PARALLEL UNSAFE');
SELECT is_empty($$SELECT oid::regclass FROM pg_class WHERE relnamespace = 'pay'::regnamespace AND relkind = 'v' AND reloptions IS DISTINCT FROM '{security_barrier=true}'$$,
	'the views are security barriers');
SELECT results_eq($$SELECT extrelocatable FROM pg_extension WHERE extname = 'outbox_payment'$$, 'VALUES (true)', 'it is relocatable');
-- No function, view or default holds the name of the schema that it is in.
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND prosrc ~ '\mpay\M'$$, 'no body names its own schema');

-- Owners. Nobody can become outbox_owner; whose functions a superuser's UPDATE would run.
SELECT results_eq($$SELECT proname::text COLLATE "C" FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND proowner <> 'symphony_control'::regrole ORDER BY 1$$,
	$$VALUES ('payment_outbox_attempts_insert' COLLATE "C"), ('payment_outbox_follow_schema'), ('payment_outbox_pending_update'), ('payment_outbox_refuse')$$,
	'control owns the functions but those of triggers');
SELECT is_empty($$SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'pay'::regnamespace AND proowner NOT IN ('symphony_control'::regrole, 'outbox_owner'::regrole)
		UNION ALL SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'pay'::regnamespace AND relowner <> 'outbox_owner'::regrole
		UNION ALL SELECT t.oid::regtype::text FROM pg_type t WHERE typnamespace = 'pay'::regnamespace AND typowner <> 'outbox_owner'::regrole$$,
	'outbox_owner owns the rest');
SELECT results_eq($$SELECT rolname::text COLLATE "C", rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication FROM pg_roles WHERE rolname ~ '^symphony_' ORDER BY 1$$,
	$$SELECT name COLLATE "C", false, false, false, false, false, false
		FROM unnest(ARRAY['symphony_auditor', 'symphony_control', 'symphony_executor', 'symphony_ingest', 'symphony_readonly']) name$$, 'the roles can do nothing but what they are granted');
SELECT results_eq($$SELECT roleid::regrole::text COLLATE "C", member::regrole::text COLLATE "C", admin_option FROM pg_auth_members
		WHERE member::regrole::text ~ '^symphony_' OR roleid::regrole::text ~ '^symphony_|^outbox_owner$' ORDER BY 1, 2$$,
	$$VALUES ('outbox_executor' COLLATE "C", 'symphony_control' COLLATE "C", false), ('outbox_ingest', 'symphony_control', false),
		('outbox_lookup', 'symphony_auditor', false), ('outbox_lookup', 'symphony_readonly', false), ('outbox_operator', 'symphony_control', false), ('outbox_readonly', 'symphony_control', false)$$,
	'memberships: control in the core''s roles, readers in what their views call, no other');

-- Rights: the whole matrix. PUBLIC stands as a role that is a member of nothing.
CREATE ROLE regress_outbox_public;
CREATE FUNCTION pg_temp.roles() RETURNS text[] LANGUAGE sql AS $$
	SELECT ARRAY['symphony_ingest', 'symphony_executor', 'symphony_readonly', 'symphony_auditor', 'symphony_control', 'regress_outbox_public']
$$;
SELECT results_eq($$SELECT c.relname::text COLLATE "C", string_agg(r, ' ' ORDER BY r COLLATE "C") FROM pg_class c, unnest(pg_temp.roles()) r
		WHERE relnamespace = 'pay'::regnamespace AND has_table_privilege(r, c.oid, 'SELECT') GROUP BY 1 ORDER BY 1$$,
	$$VALUES ('outbox_operational_status' COLLATE "C", 'symphony_auditor symphony_control symphony_readonly'), ('participant_outbox_sequences', 'symphony_control'),
		('payment_outbox_attempts', 'symphony_auditor symphony_control symphony_readonly'), ('payment_outbox_pending', 'symphony_auditor symphony_control symphony_readonly'),
		('supervisor_outbox_status', 'symphony_auditor symphony_control symphony_readonly')$$, 'who may SELECT what');
SELECT is_empty($$SELECT c.oid::regclass, r, p FROM pg_class c, unnest(pg_temp.roles()) r, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
		WHERE relnamespace IN ('pay'::regnamespace, 'outbox'::regnamespace) AND relkind IN ('r', 'p', 'v') AND has_table_privilege(r, c.oid, p)$$,
	'nobody may write, here or in the core');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'pay'::regnamespace AND attacl IS NOT NULL$$, 'no grants on columns');
SELECT is_empty($$SELECT c.oid::regclass, r FROM pg_class c, unnest(ARRAY['symphony_ingest', 'symphony_executor', 'symphony_readonly', 'symphony_auditor']) r
		WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v') AND has_table_privilege(r, c.oid, 'SELECT')$$, 'only control may read the core');
-- Grants on the core's objects would outlive the extension.
SELECT is_empty($$SELECT grantee::regrole FROM (SELECT proacl FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace UNION ALL SELECT relacl FROM pg_class WHERE relnamespace = 'outbox'::regnamespace
			UNION ALL SELECT typacl FROM pg_type WHERE typnamespace = 'outbox'::regnamespace UNION ALL SELECT nspacl FROM pg_namespace WHERE nspname = 'outbox') o(acl), aclexplode(acl)
		WHERE grantee::regrole::text ~ '^symphony_'$$, 'no grants on the core''s objects');
SELECT is_empty($$SELECT r FROM unnest(ARRAY['symphony_ingest', 'symphony_executor', 'symphony_readonly', 'symphony_auditor']) r WHERE has_schema_privilege(r, 'outbox', 'USAGE')$$,
	'only control may name what is in the core');
SELECT results_eq($$SELECT p.proname::text COLLATE "C", string_agg(r, ' ' ORDER BY r COLLATE "C") FROM pg_proc p, unnest(pg_temp.roles() || ARRAY['outbox_owner']) r
		WHERE pronamespace = 'pay'::regnamespace AND has_function_privilege(r, p.oid, 'EXECUTE') GROUP BY 1 ORDER BY 1$$,
	$$VALUES ('bump_participant_outbox_seq' COLLATE "C", 'symphony_control'), ('claim_outbox_batch', 'symphony_control symphony_executor'),
		('complete_outbox_attempt', 'symphony_control symphony_executor'), ('enqueue_payment_outbox', 'symphony_control symphony_ingest'),
		('payment_outbox_attempts_insert', 'outbox_owner'), ('payment_outbox_follow_schema', 'outbox_owner'), ('payment_outbox_pending_update', 'outbox_owner'),
		('payment_outbox_refuse', 'outbox_owner'), ('payment_outbox_validator', 'symphony_control'), ('repair_expired_leases', 'symphony_control symphony_executor')$$,
	'who may call what');
SELECT is_empty($$SELECT 'type' FROM pg_type WHERE typname = 'outbox_attempt_state' AND has_type_privilege('regress_outbox_public', oid, 'USAGE')$$, 'PUBLIC may not use the type');

-- Comments: on everything (from 17 on the types of rows and of arrays are members too), and those of functions name errors, locks and cost.
SELECT is_empty($$SELECT d.classid::regclass, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
		WHERE e.extname = 'outbox_payment' AND d.deptype = 'e' AND (t.oid IS NULL OR t.typrelid = 0 AND t.typcategory <> 'A')
			AND coalesce(obj_description(d.objid, d.classid::regclass::name), '') = ''$$, 'comments: members of the extension');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'pay'::regnamespace AND attnum > 0 AND coalesce(col_description(attrelid, attnum), '') = ''
		UNION ALL SELECT tgrelid::regclass, tgname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = 'pay'::regnamespace AND coalesce(obj_description(t.oid, 'pg_trigger'), '') = ''
		UNION ALL SELECT c.oid::regclass, '' FROM pg_class c WHERE relname = 'pending_payment_participant' AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''
		UNION ALL SELECT NULL, rolname FROM pg_roles WHERE rolname ~ '^symphony_' AND coalesce(shobj_description(oid, 'pg_authid'), '') = ''$$, 'comments: columns, triggers, the index, roles');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'pay'::regnamespace AND proowner = 'symphony_control'::regrole
		AND NOT (obj_description(oid, 'pg_proc') ~ 'rrors' AND obj_description(oid, 'pg_proc') ~ 'ocks' AND obj_description(oid, 'pg_proc') ~ 'ost')$$, 'comments of functions name errors, locks and cost');
SELECT is(pg_get_indexdef('outbox.pending_payment_participant'::regclass),
	'CREATE INDEX pending_payment_participant ON outbox.pending USING btree (partition_key, sequence_id) WHERE (queue = ''payment''::text)', 'the index in the core''s schema');
-- The index in the core's schema goes when the extension goes.
SELECT results_eq($$SELECT c.relname::text COLLATE "C" FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass JOIN pg_extension e ON e.oid = d.refobjid WHERE e.extname = 'outbox_payment' AND d.deptype = 'x'$$,
	$$VALUES ('pending_payment_participant' COLLATE "C")$$, 'the index depends on the extension');

SELECT * FROM finish();
ROLLBACK;
