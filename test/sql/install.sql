--
-- CREATE EXTENSION, DROP EXTENSION and again, in a session that has used it: nothing
-- is remembered of what is gone. Where it can be made, and where not.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

\set SHOW_CONTEXT never
-- In a session that has cached what there was.
SELECT created FROM outbox.enqueue('one', '1', idempotency_key => 'k', partition_key => 'p');
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT event_type FROM outbox.claim('w');
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
SELECT outbox.enqueue('one', '1');
\echo :SQLSTATE
SELECT nspname FROM pg_namespace WHERE nspname = 'outbox';
CREATE EXTENSION outbox;
\i :helpers
SELECT created FROM outbox.enqueue('two', '1', idempotency_key => 'k', partition_key => 'p');
SELECT event_type FROM outbox.claim('w');
SELECT recorded FROM outbox.complete(t.id('two'), t.token('two'), 'w', 'DISPATCHED');
SELECT * FROM t.ledger;
-- Dropped and rolled back: everything is there.
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
ROLLBACK;
SELECT created FROM outbox.enqueue('three', '1');
SELECT message, no, state FROM t.ledger;
-- Tables rewritten, indexes rebuilt, statistics made, moved within the session.
VACUUM FULL outbox.pending;
CLUSTER outbox.pending USING pending_pkey;
REINDEX TABLE outbox.pending;
REINDEX TABLE outbox.messages;
REINDEX INDEX CONCURRENTLY outbox.pending_due;
VACUUM FULL outbox.messages_default;
ANALYZE outbox.pending;
SELECT event_type FROM outbox.claim('w');
SELECT recorded FROM outbox.complete(t.id('three'), t.token('three'), 'w', 'DISPATCHED');

-- One schema, whatever is asked for; a schema that is somebody else's is not taken.
SELECT extnamespace::regnamespace AS objects_do_not_move, extrelocatable FROM pg_extension WHERE extname = 'outbox';
ALTER EXTENSION outbox SET SCHEMA public;
\echo :SQLSTATE
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
DROP SCHEMA IF EXISTS t CASCADE;
CREATE EXTENSION outbox SCHEMA public;
\echo :SQLSTATE
CREATE SCHEMA outbox;
CREATE EXTENSION outbox;
\echo :SQLSTATE
DROP SCHEMA outbox;
CREATE EXTENSION outbox;
\i :helpers

-- What belongs to the extension: all of it, and nothing outside its schema but casts.
SELECT count(*) AS objects_outside FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v')
	AND relname !~ '_p\d{8}$' AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e');
SELECT DISTINCT classid::regclass FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox') AND deptype = 'e' ORDER BY 1;
-- All data tables are dumped, but one that another server must not continue.
SELECT c.relname FROM pg_class c, pg_extension e WHERE e.extname = 'outbox' AND c.oid = ANY (e.extconfig) ORDER BY 1;
SELECT c.relname AS not_dumped FROM pg_class c, pg_extension e WHERE relname NOT IN ('rate_spending', 'seal_marks') AND e.extname = 'outbox' AND relnamespace = 'outbox'::regnamespace AND relkind = 'r' AND relname !~ '_p\d{8}$' AND c.oid <> ALL (e.extconfig);

-- A role that may not be built on is refused, and nothing is left behind.
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
DROP SCHEMA t CASCADE;
RESET client_min_messages;
ALTER ROLE outbox_ingest LOGIN;
CREATE EXTENSION outbox;
\echo :SQLSTATE
ALTER ROLE outbox_ingest NOLOGIN;
ALTER ROLE outbox_owner CREATEROLE;
CREATE EXTENSION outbox;
\echo :SQLSTATE
ALTER ROLE outbox_owner NOCREATEROLE;
ALTER ROLE outbox_readonly BYPASSRLS;
CREATE EXTENSION outbox;
\echo :SQLSTATE
ALTER ROLE outbox_readonly NOBYPASSRLS;
ALTER ROLE outbox_operator SUPERUSER;
CREATE EXTENSION outbox;
\echo :SQLSTATE
ALTER ROLE outbox_operator NOSUPERUSER;
SELECT nspname FROM pg_namespace WHERE nspname = 'outbox';
CREATE EXTENSION outbox;
SELECT count(*) FROM outbox.queues;

-- The install script is for CREATE EXTENSION only; so is the extension for superusers.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_plain;
DROP EXTENSION outbox CASCADE;
CREATE ROLE regress_outbox_plain;
SET ROLE regress_outbox_plain;
CREATE EXTENSION outbox;
\echo :SQLSTATE
RESET ROLE;
DROP ROLE regress_outbox_plain;
CREATE EXTENSION outbox;
