-- The inbox's interface, written down once more, the whole matrix of its rights, and a COMMENT on every object. It needs
-- no outbox.
SET client_min_messages = warning;
BEGIN;
DROP EXTENSION outbox CASCADE;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION outbox_inbox;
SELECT plan(18);

SELECT is(ARRAY(SELECT unnest(extconfig)::regclass::text COLLATE "C" FROM pg_extension WHERE extname = 'outbox_inbox' ORDER BY 1),
	ARRAY['inbox.consumers', 'inbox.failures', 'inbox.numbers', 'inbox.partitions', 'inbox.upcasters'], 'tables that are dumped');
SELECT is((SELECT receive FROM inbox.receive('billing', '00000000-0000-4000-8000-000000000001', 's', 't')), true, 'it works without an outbox');
-- A member of the extension would not be in a dump.
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.deptype = 'e' WHERE c.relname ~ '^(events|duplicates)_'$$,
	'partitions and counters are no members of the extension');

SELECT results_eq($$SELECT (proname || '(' || pg_get_function_arguments(oid) || ')') COLLATE "C", pg_get_function_result(oid), provolatile::text, prosecdef
	FROM pg_proc WHERE pronamespace = 'inbox'::regnamespace ORDER BY 1$$,
$$VALUES
	('add_upcaster(event_type text, from_version integer, function text)' COLLATE "C", 'void', 'v', false),
	('check()', 'TABLE(severity text, object text, problem text)', 's', true),
	('consumer_stats()', 'TABLE(consumer text, remember_for interval, partitions bigint, events bigint, last_consumed_at timestamp with time zone, lag interval, duplicates bigint, failing bigint, dead bigint)', 's', true),
	('drop_upcaster(event_type text, from_version integer)', 'void', 'v', true),
	('event_time(event_id uuid)', 'timestamp with time zone', 'i', false),
	('failed(consumer text, event_id uuid, error text, max_failures integer DEFAULT 5, source text DEFAULT NULL::text, event_type text DEFAULT NULL::text, payload jsonb DEFAULT NULL::jsonb, schema_version integer DEFAULT NULL::integer)', 'text', 'v', true),
	('finish(consumer text, event_id uuid)', 'void', 'v', false),
	('forget(consumer text, older_than interval)', 'bigint', 'v', true),
	('forget_before(of_consumer text, cutoff timestamp with time zone)', 'bigint', 'v', true),
	('last_event(of_consumer text, OUT consumed_at timestamp with time zone, OUT event_id uuid)', 'record', 's', false),
	('maintain()', 'TABLE(consumer text, made integer, forgotten bigint)', 'v', true),
	('make_consumer(new_consumer text)', 'void', 'v', true),
	('make_partition(for_consumer text, of_consumer_id integer)', 'void', 'v', true),
	('prometheus()', 'text', 's', true),
	('receive(consumer text, event_id uuid, source text, event_type text, payload jsonb DEFAULT NULL::jsonb, schema_version integer DEFAULT NULL::integer)', 'boolean', 'v', false),
	('receive_batch(consumer text, events jsonb)', 'SETOF uuid', 'v', false),
	('registered_upcasters()', 'TABLE(event_type text, from_version integer, function text, function_owner text, is_sound boolean)', 's', true),
	('replay(consumer text, event_id uuid)', 'void', 'v', true),
	('set_window(consumer text, remember_for interval)', 'void', 'v', true),
	('store_upcaster(event_type text, from_version integer, function regprocedure)', 'void', 'v', true),
	('upcast(event_type text, INOUT schema_version integer, INOUT payload jsonb, to_version integer DEFAULT NULL::integer, headers jsonb DEFAULT ''{}''::jsonb)', 'record', 'v', false),
	('upcast_steps(event_type text, from_version integer, to_version integer)', 'TABLE(step integer, function text)', 's', true)$$,
	'functions');

CREATE ROLE regress_inbox_public;
CREATE FUNCTION pg_temp.on_relation(who text, what oid, kind "char") RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(p, ' '), '') FROM unnest(CASE WHEN kind = 'S' THEN ARRAY['USAGE', 'SELECT', 'UPDATE']
		ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'] END) p
	WHERE CASE WHEN kind = 'S' THEN has_sequence_privilege(who, what, p) ELSE has_table_privilege(who, what, p)
		OR (p IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(who, what, p)) END
$$;
CREATE FUNCTION pg_temp.on_function(who text, what oid) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN has_function_privilege(who, what, 'EXECUTE') THEN 'EXECUTE' ELSE '' END
$$;
SELECT results_eq($$
	SELECT DISTINCT regexp_replace(relname::text, '[0-9]+', 'N') COLLATE "C", pg_temp.on_relation('inbox_consumer', oid, relkind), pg_temp.on_relation('inbox_operator', oid, relkind),
		pg_temp.on_relation('inbox_readonly', oid, relkind), pg_temp.on_relation('regress_inbox_public', oid, relkind)
	FROM pg_class WHERE relnamespace = 'inbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') ORDER BY 1$$,
-- relation                   consumer operator  readonly  PUBLIC
	$$VALUES
	('consumers' COLLATE "C",  '',      'SELECT', 'SELECT', ''),
	('duplicates_N',           '',      '',       '',       ''),
	('events',                 '',      '',       '',       ''),
	('events_N',               '',      '',       '',       ''),
	('failures',               '',      'SELECT', 'SELECT', ''),
	('log',                    '',      'SELECT', 'SELECT', ''),
	('numbers',                '',      '',       '',       ''),
	('partitions',             '',      'SELECT', 'SELECT', ''),
	('stats',                  '',      'SELECT', 'SELECT', ''),
	('upcasters',              '',      'SELECT', 'SELECT', '')$$,
	'rights on tables, views and sequences');
SELECT results_eq($$
	SELECT proname::text COLLATE "C", pg_temp.on_function('inbox_consumer', oid), pg_temp.on_function('inbox_operator', oid),
		pg_temp.on_function('inbox_readonly', oid), pg_temp.on_function('regress_inbox_public', oid)
	FROM pg_proc WHERE pronamespace = 'inbox'::regnamespace ORDER BY 1$$,
-- function                       consumer   operator   readonly   PUBLIC
	$$VALUES
	('add_upcaster' COLLATE "C",   '',        'EXECUTE', '',        ''),
	('check',                      '',        'EXECUTE', '',        ''),
	('consumer_stats',             '',        'EXECUTE', 'EXECUTE', ''),
	('drop_upcaster',              '',        'EXECUTE', '',        ''),
	('event_time',                 '',        'EXECUTE', 'EXECUTE', ''),
	('failed',                     'EXECUTE', '',        '',        ''),
	('finish',                     'EXECUTE', '',        '',        ''),
	('forget',                     '',        'EXECUTE', '',        ''),
	('forget_before',              '',        '',        '',        ''),
	('last_event',                 '',        '',        '',        ''),
	('maintain',                   '',        'EXECUTE', '',        ''),
	('make_consumer',              '',        '',        '',        ''),
	('make_partition',             '',        '',        '',        ''),
	('prometheus',                 '',        'EXECUTE', 'EXECUTE', ''),
	('receive',                    'EXECUTE', '',        '',        ''),
	('receive_batch',              'EXECUTE', '',        '',        ''),
	('registered_upcasters',       '',        '',        '',        ''),
	('replay',                     '',        'EXECUTE', '',        ''),
	('set_window',                 '',        'EXECUTE', '',        ''),
	('store_upcaster',             '',        'EXECUTE', '',        ''),
	('upcast',                     'EXECUTE', 'EXECUTE', '',        ''),
	('upcast_steps',               'EXECUTE', 'EXECUTE', '',        '')$$,
	'rights on functions');
SELECT results_eq($$SELECT r, has_schema_privilege(r, 'inbox', 'USAGE'), has_schema_privilege(r, 'inbox', 'CREATE')
	FROM unnest('{inbox_consumer,inbox_operator,inbox_readonly,regress_inbox_public}'::text[]) r$$,
	$$VALUES ('inbox_consumer', true, false), ('inbox_operator', true, false), ('inbox_readonly', true, false), ('regress_inbox_public', false, false)$$,
	'rights on the schema');
SELECT is_empty($$SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'inbox'::regnamespace AND relowner <> 'inbox_owner'::regrole
	UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'inbox'::regnamespace AND proowner <> 'inbox_owner'::regrole$$, 'all belongs to inbox_owner');
SELECT is_empty($$SELECT rolname FROM pg_roles WHERE rolname ~ '^inbox_' AND (rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)$$,
	'no role has rights of its own');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'inbox'::regnamespace AND prosecdef
	AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{}'))$$, 'what runs as its owner pins search_path, pg_temp last');

-- at work: as a consumer, an operator, a reader
SET ROLE inbox_consumer;
SELECT is(inbox.receive('of a consumer', '00000000-0000-4000-8000-000000000001', 's', 't'), true, 'a consumer receives, and so makes a consumer');
SELECT is(inbox.receive('of a consumer', '00000000-0000-4000-8000-000000000001', 's', 't'), false, '... once');
SELECT is(inbox.failed('of a consumer', '00000000-0000-4000-8000-000000000002', 'error', 1), 'dead', '... and reports what failed');
RESET ROLE;
SET ROLE inbox_operator;
SELECT is(inbox.forget('of a consumer', '0'), 1::bigint, 'an operator forgets');
RESET ROLE;
SET ROLE inbox_readonly;
SELECT is((SELECT array_agg(s.consumer || ' ' || s.duplicates || ' ' || s.dead ORDER BY s.consumer) FROM inbox.stats s), ARRAY['billing 0 0', 'of a consumer 1 1'], 'a reader sees what there is');
RESET ROLE;

SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'inbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f', 'i')
	AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''$$, 'COMMENTs of tables, views, sequences and indexes');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
	WHERE relnamespace = 'inbox'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0 AND NOT attisdropped AND attinhcount = 0
	AND coalesce(col_description(attrelid, attnum), '') = ''$$, '... columns');
SELECT is_empty($$SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'inbox'::regnamespace AND coalesce(obj_description(oid, 'pg_proc'), '') = ''
	UNION ALL SELECT conrelid::regclass || ' ' || conname FROM pg_constraint WHERE connamespace = 'inbox'::regnamespace AND contype NOT IN ('n', 't') AND coninhcount = 0
	AND coalesce(obj_description(oid, 'pg_constraint'), '') = ''$$, '... functions and constraints');

SELECT * FROM finish();
ROLLBACK;
