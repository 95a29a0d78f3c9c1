-- A COMMENT on every object: schema, tables, views, columns, constraints, indexes,
-- triggers, functions, type, casts, roles; also on partitions that are made later.
-- Not counted: what a partition has from its parent (columns, the clone of a
-- trigger), and the row and array types that come with a table or type.
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS outbox;
SELECT plan(15);

-- With dated partitions.
SELECT is((SELECT count(*) FROM outbox.maintain()), 0::bigint, 'there is nothing for maintain to do');
SELECT cmp_ok((SELECT count(*) FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '^(messages|attempts)_p[0-9]{8}$'), '>=', 4::bigint,
	'dated partitions are there');

SELECT isnt(coalesce(obj_description('outbox'::regnamespace, 'pg_namespace'), ''), '', 'schema');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
	AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''$$, 'tables and views');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
	WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') AND attnum > 0 AND NOT attisdropped AND attinhcount = 0
	AND coalesce(col_description(attrelid, attnum), '') = ''$$, 'columns');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('i', 'I')
	AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''$$, 'indexes');
SELECT is_empty($$SELECT conrelid::regclass, conname FROM pg_constraint WHERE connamespace = 'outbox'::regnamespace AND contype NOT IN ('n', 't') AND coninhcount = 0
	AND coalesce(obj_description(oid, 'pg_constraint'), '') = ''$$, 'constraints');
SELECT is_empty($$SELECT tgrelid::regclass, tgname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = 'outbox'::regnamespace AND tgparentid = 0
	AND coalesce(obj_description(t.oid, 'pg_trigger'), '') = ''$$, 'triggers');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND coalesce(obj_description(oid, 'pg_proc'), '') = ''$$, 'functions');
SELECT is_empty($$SELECT oid::regtype FROM pg_type WHERE typnamespace = 'outbox'::regnamespace AND typtype <> 'c' AND typcategory <> 'A' AND coalesce(obj_description(oid, 'pg_type'), '') = ''$$, 'types');
SELECT is_empty($$SELECT castsource::regtype FROM pg_cast WHERE casttarget = 'outbox.attempt_state'::regtype AND coalesce(obj_description(oid, 'pg_cast'), '') = ''$$, 'casts');
SELECT isnt(coalesce((SELECT obj_description(oid, 'pg_extension') FROM pg_extension WHERE extname = 'outbox'), ''), '', 'the extension');
SELECT is_empty($$SELECT rolname FROM pg_roles WHERE rolname ~ '^outbox_' AND coalesce(shobj_description(oid, 'pg_authid'), '') = ''$$, 'roles');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name LIKE 'outbox.%' AND coalesce(short_desc, '') = ''$$, 'settings');
-- Functions that can fail say how: their comments name errors, locks and cost.
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND prorettype <> 'trigger'::regtype AND proname <> 'key_digest'
	AND NOT (obj_description(oid, 'pg_proc') ~* 'error' AND obj_description(oid, 'pg_proc') ~* 'lock|reads catalogs only' AND obj_description(oid, 'pg_proc') ~* 'cost|read')$$,
	'comments of functions name errors, locks and cost');

SELECT * FROM finish();
ROLLBACK;
