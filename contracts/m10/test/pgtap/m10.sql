-- Shapes and rights of outbox_m10: each function has exactly one signature, with the
-- names, order, types, defaults and result columns of the contract; the view's columns;
-- owner, grants, triggers and comments. (The calls themselves: ../sql/m10.sql.)
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS outbox;
SELECT plan(40);

-- What the core grants must be the same with this extension beside it.
CREATE TEMP VIEW core_acl AS
	SELECT 'relation ' || oid::regclass AS object, relacl::text AS acl FROM pg_class WHERE relnamespace = 'outbox'::regnamespace
	UNION ALL SELECT 'function ' || oid::regprocedure, proacl::text FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace
	UNION ALL SELECT 'schema', nspacl::text FROM pg_namespace WHERE nspname = 'outbox';
CREATE TEMP TABLE core_acl_before AS SELECT * FROM core_acl;
CREATE ROLE regress_m10_public;
SELECT lives_ok('CREATE EXTENSION outbox_m10', 'the extension is made');

-- Functions.
SELECT results_eq(
	$$SELECT proname::text COLLATE "C", count(*) FROM pg_proc WHERE pronamespace = 'm10_recovery'::regnamespace GROUP BY 1 ORDER BY 1$$,
	$$VALUES ('claim_outbox_events' COLLATE "C", 1::bigint), ('complete_outbox_event', 1), ('publish_outbox', 1)$$,
	'the functions, one signature each: overloads are forbidden');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc
	WHERE proname IN ('claim_outbox_events', 'complete_outbox_event', 'publish_outbox') AND pronamespace <> 'm10_recovery'::regnamespace$$,
	'and none of these names in another schema');
CREATE FUNCTION pg_temp.arguments(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_get_function_arguments(oid), ' AND ') FROM pg_proc
	WHERE pronamespace = 'm10_recovery'::regnamespace AND proname = name
$$;
CREATE FUNCTION pg_temp.result(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_get_function_result(oid), ' AND ') FROM pg_proc
	WHERE pronamespace = 'm10_recovery'::regnamespace AND proname = name
$$;
SELECT is(pg_temp.arguments('claim_outbox_events'), 'p_processor_id text, p_batch_size integer DEFAULT 10', 'arguments of claim_outbox_events');
SELECT is(pg_temp.result('claim_outbox_events'),
	'TABLE(id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, retry_count integer)', 'result of claim_outbox_events');
SELECT is(pg_temp.arguments('complete_outbox_event'),
	'p_event_id bigint, p_processor_id text, p_success boolean, p_error text DEFAULT NULL::text', 'arguments of complete_outbox_event');
SELECT is(pg_temp.result('complete_outbox_event'), 'void', 'result of complete_outbox_event');
SELECT is(pg_temp.arguments('publish_outbox'), 'p_aggregate_type text, p_aggregate_id text, p_event_type text, p_payload jsonb', 'arguments of publish_outbox');
SELECT is(pg_temp.result('publish_outbox'), 'bigint', 'result of publish_outbox');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'm10_recovery'::regnamespace
	AND (prokind <> 'f' OR provolatile <> 'v' OR proparallel <> 'u' OR proisstrict OR proleakproof OR proretset <> (proname = 'claim_outbox_events'))$$,
	'plain volatile functions that see their NULLs');
SELECT is_empty($$SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'm10_recovery'::regnamespace
	AND NOT (prosecdef AND proconfig @> '{"search_path=pg_catalog, pg_temp"}')$$,
	'they run as their owner, with a pinned search_path, pg_temp last');

-- The view.
SELECT results_eq(
	$$SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = 'm10_recovery.outbox'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum$$,
	$$VALUES ('id', 'bigint'), ('aggregate_type', 'text'), ('aggregate_id', 'text'), ('event_type', 'text'), ('payload', 'jsonb'),
		('created_at', 'timestamp with time zone'), ('processed_at', 'timestamp with time zone'), ('retry_count', 'integer'),
		('process_after', 'timestamp with time zone'), ('claimed_at', 'timestamp with time zone'), ('claimed_by', 'text'),
		('next_retry_at', 'timestamp with time zone')$$,
	'columns of the view');
SELECT results_eq(
	$$SELECT (relkind::text || ' ' || relname) COLLATE "C" FROM pg_class WHERE relnamespace = 'm10_recovery'::regnamespace AND relkind NOT IN ('i', 'c') ORDER BY 1$$,
	$$VALUES ('S event_ids_id_seq' COLLATE "C"), ('r event_ids'), ('v outbox')$$,
	'no table but the map of ids');

-- The map of ids.
SELECT col_type_is('m10_recovery', 'event_ids', 'id', 'bigint', 'ids are bigint');
SELECT is((SELECT attidentity::text FROM pg_attribute WHERE attrelid = 'm10_recovery.event_ids'::regclass AND attname = 'id'), 'a', 'always an identity');
SELECT col_is_pk('m10_recovery', 'event_ids', 'id', 'an id stands for one message');
SELECT col_is_unique('m10_recovery', 'event_ids', 'outbox_id', 'a message has one id');
SELECT results_eq(
	$$SELECT (tgname || ' ' || tgenabled::text || ' ' || tgfoid::regprocedure) COLLATE "C", tgtype::int FROM pg_trigger WHERE tgrelid = 'm10_recovery.event_ids'::regclass ORDER BY 1$$,
	$$VALUES ('append_only A outbox.append_only()' COLLATE "C", 1 | 2 | 8 | 16), ('append_only_truncate A outbox.append_only()', 2 | 32)$$,
	'append-only, ALWAYS');
SELECT results_eq(
	$$SELECT c.oid::regclass::text FROM pg_extension e, unnest(e.extconfig) t(oid) JOIN pg_class c USING (oid) WHERE extname = 'outbox_m10' ORDER BY 1$$,
	$$VALUES ('m10_recovery.event_ids'), ('m10_recovery.event_ids_id_seq')$$,
	'ids and where they go on are dumped');

-- The extension, its members and its owner.
SELECT is((SELECT extrelocatable FROM pg_extension WHERE extname = 'outbox_m10'), false, 'not relocatable');
SELECT is((SELECT requires FROM pg_available_extension_versions WHERE name = 'outbox_m10'), '{outbox}', 'requires outbox');
SELECT ok(EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
	WHERE d.classid = 'pg_namespace'::regclass AND d.objid = 'm10_recovery'::regnamespace AND d.deptype = 'e' AND e.extname = 'outbox_m10'), 'the schema is a member');
SELECT is_empty($$SELECT pg_describe_object(classid, objid, 0) FROM (
		SELECT 'pg_class'::regclass AS classid, oid AS objid, relowner AS owner FROM pg_class WHERE relnamespace = 'm10_recovery'::regnamespace
		UNION ALL SELECT 'pg_proc'::regclass, oid, proowner FROM pg_proc WHERE pronamespace = 'm10_recovery'::regnamespace
		UNION ALL SELECT 'pg_namespace'::regclass, oid, nspowner FROM pg_namespace WHERE nspname = 'm10_recovery') o
	WHERE owner <> 'm10_recovery_owner'::regrole$$, 'everything belongs to m10_recovery_owner');
SELECT results_eq($$SELECT rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication FROM pg_roles WHERE rolname = 'm10_recovery_owner'$$,
	'VALUES (false, false, false, false, false, false)', 'a role that can do nothing by itself');
SELECT results_eq($$SELECT roleid::regrole::text, admin_option FROM pg_auth_members WHERE member = 'm10_recovery_owner'::regrole ORDER BY 1$$,
	$$VALUES ('outbox_executor', false), ('outbox_ingest', false), ('outbox_readonly', false)$$, 'what it may do in the core, it may as a member');
SELECT is_empty($$SELECT member::regrole FROM pg_auth_members WHERE roleid = 'm10_recovery_owner'::regrole$$, 'nobody is a member of it');
SELECT is_empty('(TABLE core_acl EXCEPT TABLE core_acl_before) UNION ALL (TABLE core_acl_before EXCEPT TABLE core_acl)', 'the core''s rights are as they were');

-- Rights: the whole matrix.
CREATE TEMP VIEW who AS
	SELECT * FROM unnest(ARRAY['outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor', 'regress_m10_public']) WITH ORDINALITY w(who, n);
SELECT results_eq($$SELECT who, has_schema_privilege(who, 'm10_recovery', 'USAGE'), has_schema_privilege(who, 'm10_recovery', 'CREATE'),
		has_function_privilege(who, 'm10_recovery.publish_outbox(text, text, text, jsonb)', 'EXECUTE'),
		has_function_privilege(who, 'm10_recovery.claim_outbox_events(text, integer)', 'EXECUTE'),
		has_function_privilege(who, 'm10_recovery.complete_outbox_event(bigint, text, boolean, text)', 'EXECUTE')
	FROM who ORDER BY n$$,
-- role                      schema: USAGE CREATE publish claim  complete
	$$VALUES
	('outbox_ingest',        true,         false, true,   false, false),
	('outbox_executor',      true,         false, false,  true,  true),
	('outbox_operator',      true,         false, false,  false, false),
	('outbox_readonly',      true,         false, false,  false, false),
	('outbox_auditor',       true,         false, false,  false, false),
	('regress_m10_public',   false,        false, false,  false, false)$$, 'rights on schema and functions');
SELECT results_eq($$SELECT who, (SELECT coalesce(string_agg(p, ' '), '') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
			WHERE has_table_privilege(who, 'm10_recovery.outbox', p)),
		(SELECT coalesce(string_agg(p, ' '), '') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
			WHERE has_table_privilege(who, 'm10_recovery.event_ids', p)),
		has_sequence_privilege(who, 'm10_recovery.event_ids_id_seq', 'USAGE, SELECT, UPDATE')
	FROM who ORDER BY n$$,
-- role                      view      ids       sequence
	$$VALUES
	('outbox_ingest',        '',       '',       false),
	('outbox_executor',      '',       '',       false),
	('outbox_operator',      '',       'SELECT', false),
	('outbox_readonly',      'SELECT', 'SELECT', false),
	('outbox_auditor',       'SELECT', 'SELECT', false),
	('regress_m10_public',   '',       '',       false)$$, 'rights on view, ids and sequence');
CREATE TEMP VIEW acl AS
	SELECT 'relation ' || c.oid::regclass AS object, relowner AS owner, a.* FROM pg_class c, LATERAL aclexplode(coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))) a WHERE relnamespace = 'm10_recovery'::regnamespace AND relkind IN ('r', 'v', 'S')
	UNION ALL SELECT 'column ' || attrelid::regclass || '.' || attname, relowner, a.* FROM pg_attribute JOIN pg_class c ON c.oid = attrelid, LATERAL aclexplode(attacl) a WHERE relnamespace = 'm10_recovery'::regnamespace
	UNION ALL SELECT 'function ' || p.oid::regprocedure, proowner, a.* FROM pg_proc p, LATERAL aclexplode(coalesce(proacl, acldefault('f', proowner))) a WHERE pronamespace = 'm10_recovery'::regnamespace
	UNION ALL SELECT 'schema ' || nspname, nspowner, a.* FROM pg_namespace n, LATERAL aclexplode(coalesce(nspacl, acldefault('n', nspowner))) a WHERE nspname = 'm10_recovery';
SELECT is_empty('SELECT object, privilege_type FROM acl WHERE grantee = 0', 'PUBLIC has nothing');
SELECT is_empty($$SELECT object, grantee::regrole FROM acl WHERE grantee <> owner AND grantee <> ALL (ARRAY['outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor']::regrole[]::oid[])$$,
	'nobody but the core''s roles has anything');
SELECT is_empty($$SELECT object, grantee::regrole, privilege_type FROM acl WHERE grantee <> owner AND (is_grantable OR object LIKE 'column %')$$, 'no grant options, none by column');
SELECT is_empty($$SELECT 1 FROM pg_class WHERE oid = 'm10_recovery.outbox'::regclass AND coalesce(reloptions::text, '') ~ 'security_invoker=(true|on|1)'$$,
	'the view runs with the rights of its owner');

-- Comments.
SELECT isnt(coalesce(obj_description('m10_recovery'::regnamespace, 'pg_namespace'), ''), '', 'comment of the schema');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'm10_recovery'::regnamespace AND relkind <> 'c'
	AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''$$, 'comments of relations');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
	WHERE relnamespace = 'm10_recovery'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0 AND NOT attisdropped
	AND coalesce(col_description(attrelid, attnum), '') = ''$$, 'comments of columns');
SELECT is_empty($$SELECT conname FROM pg_constraint WHERE connamespace = 'm10_recovery'::regnamespace AND contype <> 'n' AND coalesce(obj_description(oid, 'pg_constraint'), '') = ''
	UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'm10_recovery.event_ids'::regclass AND coalesce(obj_description(oid, 'pg_trigger'), '') = ''$$,
	'comments of constraints and triggers');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'm10_recovery'::regnamespace
	AND NOT (coalesce(obj_description(oid, 'pg_proc'), '') ~ 'Errors: .*Locks: .*Cost: ' )$$, 'comments of functions name errors, locks and cost');
SELECT isnt(coalesce(shobj_description('m10_recovery_owner'::regrole, 'pg_authid'), ''), '', 'comment of the role');
SELECT isnt(coalesce((SELECT obj_description(oid, 'pg_extension') FROM pg_extension WHERE extname = 'outbox_m10'), ''), '', 'comment of the extension');

SELECT * FROM finish();
ROLLBACK;
