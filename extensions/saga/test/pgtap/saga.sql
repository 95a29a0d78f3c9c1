-- The interface of the extension outbox_saga, written down once more, the whole matrix of its rights, and a COMMENT on
-- every object.
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION outbox_saga;
SELECT plan(23);

SELECT is(ARRAY(SELECT unnest(extconfig)::regclass::text COLLATE "C" FROM pg_extension WHERE extname = 'outbox_saga' ORDER BY 1),
	ARRAY['saga.audit_log', 'saga.definition_steps', 'saga.definitions', 'saga.instances', 'saga.runs', 'saga.steps'], 'tables that are dumped');
SELECT is((SELECT (handler, handler_owner, max_attempts)::text FROM outbox.queues WHERE queue = 'saga_internal'), '(saga.handle,outbox_saga_owner,)', 'the queue saga_internal has its handler');

SELECT results_eq($$SELECT (proname || '(' || pg_get_function_arguments(oid) || ')') COLLATE "C", pg_get_function_result(oid), provolatile::text, prosecdef
	FROM pg_proc WHERE pronamespace = 'saga'::regnamespace ORDER BY 1$$,
$$VALUES
	('abort(saga_id uuid, reason text)' COLLATE "C", 'void', 'v', false),
	('check_steps(steps jsonb)', 'void', 's', false),
	('create(saga_type text, correlation_id uuid, state jsonb DEFAULT ''{}''::jsonb, saga_id uuid DEFAULT NULL::uuid)', 'uuid', 'v', false),
	('define(saga_type text, steps jsonb, audit text DEFAULT ''full''::text)', 'integer', 'v', true),
	('fail(outbox_id uuid, lease_token uuid, worker_id text, error_code text, error_message text, retryable boolean DEFAULT false)', 'void', 'v', false),
	('handle(message outbox.claimed)', 'void', 'v', false),
	('load(saga_id uuid, for_update boolean DEFAULT false)', 'saga.instances', 'v', false),
	('prometheus()', 'text', 's', true),
	('refuse_null(VARIADIC name_value text[])', 'void', 'i', false),
	('reply(saga_id uuid, step text, succeeded boolean, result jsonb DEFAULT ''{}''::jsonb, error text DEFAULT NULL::text, direction text DEFAULT ''forward''::text, round integer DEFAULT NULL::integer)', 'void', 'v', false),
	('retry(saga_id uuid)', 'void', 'v', false),
	('save(saga_id uuid, state jsonb, status text, expected_version bigint, current_step text DEFAULT NULL::text, error text DEFAULT NULL::text)', 'bigint', 'v', false),
	('start(saga_type text, correlation_id uuid, state jsonb DEFAULT ''{}''::jsonb, idempotency_key text DEFAULT NULL::text, headers jsonb DEFAULT ''{}''::jsonb)', 'uuid', 'v', false),
	('stuck(older_than interval)', 'SETOF saga.instances', 's', true),
	('succeed(outbox_id uuid, lease_token uuid, worker_id text, result jsonb DEFAULT ''{}''::jsonb, state_patch jsonb DEFAULT ''{}''::jsonb)', 'void', 'v', false)$$,
	'functions');

CREATE ROLE regress_saga_public;
CREATE FUNCTION pg_temp.on_relation(who text, what oid) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(p, ' '), '') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
	WHERE has_table_privilege(who, what, p) OR (p IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(who, what, p))
$$;
CREATE FUNCTION pg_temp.on_function(who text, what oid) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN has_function_privilege(who, what, 'EXECUTE') THEN 'EXECUTE' ELSE '' END
$$;
SELECT results_eq($$
	SELECT relname::text COLLATE "C", pg_temp.on_relation('outbox_saga', oid), pg_temp.on_relation('outbox_operator', oid),
		pg_temp.on_relation('outbox_readonly', oid), pg_temp.on_relation('outbox_auditor', oid), pg_temp.on_relation('regress_saga_public', oid)
	FROM pg_class WHERE relnamespace = 'saga'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') ORDER BY 1$$,
-- relation                    saga  operator  readonly  auditor   PUBLIC
	$$VALUES
	('audit_log' COLLATE "C",  '', 'SELECT', 'SELECT', 'SELECT', ''),
	('definition_steps',       '', 'SELECT', 'SELECT', 'SELECT', ''),
	('definitions',            '', 'SELECT', 'SELECT', 'SELECT', ''),
	('instances',              '', 'SELECT', 'SELECT', 'SELECT', ''),
	('runs',                   '', 'SELECT', 'SELECT', 'SELECT', ''),
	('stats',                  '', 'SELECT', 'SELECT', 'SELECT', ''),
	('steps',                  '', 'SELECT', 'SELECT', 'SELECT', ''),
	('transitions',            '', 'SELECT', 'SELECT', 'SELECT', ''),
	('uncompensated',          '', 'SELECT', 'SELECT', 'SELECT', '')$$,
	'rights on tables and views');
SELECT results_eq($$
	SELECT proname::text COLLATE "C", pg_temp.on_function('outbox_saga', oid), pg_temp.on_function('outbox_operator', oid),
		pg_temp.on_function('outbox_readonly', oid), pg_temp.on_function('outbox_auditor', oid), pg_temp.on_function('regress_saga_public', oid)
	FROM pg_proc WHERE pronamespace = 'saga'::regnamespace ORDER BY 1$$,
-- function, outbox_saga, operator, readonly, auditor, PUBLIC
	$$VALUES
	('abort' COLLATE "C", '', 'EXECUTE', '', '', ''),
	('check_steps', '', '', '', '', ''),
	('create', 'EXECUTE', '', '', '', ''),
	('define', '', 'EXECUTE', '', '', ''),
	('fail', 'EXECUTE', '', '', '', ''),
	('handle', '', '', '', '', ''),
	('load', 'EXECUTE', '', '', '', ''),
	('prometheus', '', 'EXECUTE', 'EXECUTE', 'EXECUTE', ''),
	('refuse_null', '', '', '', '', ''),
	('reply', 'EXECUTE', '', '', '', ''),
	('retry', '', 'EXECUTE', '', '', ''),
	('save', 'EXECUTE', '', '', '', ''),
	('start', 'EXECUTE', '', '', '', ''),
	('stuck', 'EXECUTE', 'EXECUTE', 'EXECUTE', 'EXECUTE', ''),
	('succeed', 'EXECUTE', '', '', '', '')$$,
	'rights on functions');
SELECT results_eq($$SELECT r, has_schema_privilege(r, 'saga', 'USAGE'), has_schema_privilege(r, 'saga', 'CREATE')
	FROM unnest('{outbox_saga,outbox_operator,outbox_readonly,outbox_auditor,outbox_ingest,outbox_executor,regress_saga_public}'::text[]) r$$,
	$$VALUES ('outbox_saga', true, false), ('outbox_operator', true, false), ('outbox_readonly', true, false), ('outbox_auditor', true, false),
		('outbox_ingest', false, false), ('outbox_executor', false, false), ('regress_saga_public', false, false)$$, 'rights on the schema');
SELECT is_empty($$SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'saga'::regnamespace AND relowner <> 'outbox_saga_owner'::regrole
	UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'saga'::regnamespace AND proowner <> 'outbox_saga_owner'::regrole$$, 'all belongs to outbox_saga_owner');
SELECT is_empty($$SELECT rolname FROM pg_roles WHERE rolname ~ '^outbox_saga' AND (rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)$$,
	'no role has rights of its own');
SELECT set_eq($$SELECT b.rolname || ' in ' || a.rolname FROM pg_auth_members m JOIN pg_roles a ON a.oid = m.roleid JOIN pg_roles b ON b.oid = m.member WHERE b.rolname ~ '^outbox_saga' OR a.rolname = 'outbox_saga_owner'$$,
	ARRAY['outbox_saga_owner in outbox_ingest', 'outbox_saga_owner in outbox_executor', 'outbox_saga_owner in outbox_operator'], '... but the owner may send, claim and cancel');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'saga'::regnamespace AND prosecdef
	AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{}'))$$, 'what runs as its owner pins search_path, pg_temp last');
-- Its path is that of its caller, which pins it. What is in C looks nothing up by a path, and acts as the owner by itself.
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, unnest('{outbox_saga,outbox_operator,outbox_readonly,outbox_auditor,regress_saga_public}'::text[]) r
	WHERE pronamespace = 'saga'::regnamespace AND NOT prosecdef AND prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c') AND has_function_privilege(r, p.oid, 'EXECUTE')$$, 'what does not is not called by others');

-- at work: an operator, a service, a worker, a reader
CREATE ROLE regress_saga_service IN ROLE outbox_saga;
CREATE ROLE regress_saga_worker IN ROLE outbox_saga, outbox_executor;
SET ROLE outbox_operator;
SELECT outbox.create_queue('work', handler => NULL) IS NOT NULL;
SELECT is(saga.define('order', '[{"name": "a", "command": "a", "queue": "work", "compensation": "b", "timeout": "1 h"}]'), 1, 'an operator defines');
SELECT matches(saga.prometheus(), 'saga_open\{saga_type="order",status="running"\} 0', '... and reads metrics');
SELECT throws_ok($$SELECT saga.start('order', NULL)$$, '42501', NULL, '... and does not start');
RESET ROLE;
SET ROLE regress_saga_service;
SELECT isnt(saga.start('order', NULL), NULL, 'a service starts, though it may not enqueue');
SELECT throws_ok($$SELECT outbox.enqueue('a', '{}', 'work')$$, '42501', NULL, '... itself');
SELECT throws_ok($$SELECT saga.handle(NULL)$$, '42501', NULL, '... or call what is internal');
RESET ROLE;
SET ROLE regress_saga_worker;
SELECT is((SELECT count(saga.succeed(c.outbox_id, c.lease_token, 'w')) FROM outbox.claim('w', 1, queues => '{work}') c), 1::bigint, 'a worker answers');
RESET ROLE;
SET ROLE outbox_readonly;
SELECT is((SELECT i.status FROM saga.instances i), 'completed', 'a reader reads');
SELECT throws_ok($$DELETE FROM saga.audit_log$$, '42501', NULL, '... and no more');
RESET ROLE;

SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'saga'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f', 'i')
	AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''$$, 'COMMENTs of tables, views and indexes');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
	WHERE relnamespace = 'saga'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0 AND NOT attisdropped AND coalesce(col_description(attrelid, attnum), '') = ''$$, '... columns');
SELECT is_empty($$SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'saga'::regnamespace AND coalesce(obj_description(oid, 'pg_proc'), '') = ''
	UNION ALL SELECT conrelid::regclass || ' ' || conname FROM pg_constraint WHERE connamespace = 'saga'::regnamespace AND contype NOT IN ('n', 't')
	AND coalesce(obj_description(oid, 'pg_constraint'), '') = ''$$, '... functions and constraints');

SELECT * FROM finish();
ROLLBACK;
