-- The roles that CREATE EXTENSION makes, and that it refuses to build on existing
-- ones that may do more.
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS outbox;
SELECT plan(44);

-- Those of sagas belong to another extension: extensions/saga/test/pgtap.
SELECT results_eq($$SELECT rolname::text COLLATE "C", rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication FROM pg_roles WHERE rolname ~ '^outbox_(?!saga)' ORDER BY 1$$,
	$$SELECT name COLLATE "C", false, false, false, false, false, false
		FROM unnest(ARRAY['outbox_auditor', 'outbox_executor', 'outbox_ingest', 'outbox_lookup', 'outbox_operator', 'outbox_owner', 'outbox_privacy', 'outbox_readonly']) name$$,
	'the roles can do nothing but what they are granted');
SELECT is_empty($$SELECT a.rolname, b.rolname FROM pg_auth_members m JOIN pg_roles a ON a.oid = m.roleid JOIN pg_roles b ON b.oid = m.member
	WHERE b.rolname ~ '^outbox_(?!saga)' OR a.rolname = 'outbox_owner'$$, 'none is a member of another');
SELECT is_empty($$SELECT rolname FROM pg_authid WHERE rolname ~ '^outbox_(?!saga)' AND rolpassword IS NOT NULL$$, 'none has a password');

-- outbox_owner owns everything that the extension made.
SELECT is_empty($$SELECT c.oid::regclass, relowner::regrole FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relowner <> 'outbox_owner'::regrole$$, 'relations belong to outbox_owner');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND proowner <> 'outbox_owner'::regrole$$, 'functions belong to outbox_owner');
SELECT is_empty($$SELECT oid::regtype FROM pg_type WHERE typnamespace = 'outbox'::regnamespace AND typowner <> 'outbox_owner'::regrole$$, 'types belong to outbox_owner');
SELECT schema_owner_is('outbox', 'outbox_owner', 'the schema belongs to outbox_owner');
SELECT lives_ok('SELECT FROM outbox.maintain()', 'maintain');
SELECT is_empty($$SELECT c.oid::regclass, relowner::regrole FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relowner <> 'outbox_owner'::regrole$$, 'so do partitions made later');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relowner = 'outbox_owner'::regrole AND relnamespace NOT IN ('outbox'::regnamespace, 'pg_toast'::regnamespace)$$, 'and it owns nothing else');

-- Refused: each role, with each right that is too much. The message names the role,
-- the hint what to do.
DROP EXTENSION outbox CASCADE;
CREATE FUNCTION pg_temp.refused(role text, attribute text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER ROLE %I %s', role, attribute);
	RETURN NEXT throws_ok('CREATE EXTENSION outbox', '0P000', format('role "%s" exists and has more rights than the extension may build on', role), role || ' with ' || attribute);
	EXECUTE format('ALTER ROLE %I NO%s', role, attribute);
END
$$;
SELECT pg_temp.refused(role, attribute)
FROM unnest(ARRAY['outbox_owner', 'outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor', 'outbox_privacy', 'outbox_lookup']) role,
	unnest(ARRAY['LOGIN', 'SUPERUSER', 'CREATEROLE', 'BYPASSRLS']) attribute;
SELECT hasnt_schema('outbox', 'a refusal leaves nothing behind');
SELECT lives_ok('CREATE EXTENSION outbox', 'with plain roles that exist, it is made');

SELECT * FROM finish();
ROLLBACK;
