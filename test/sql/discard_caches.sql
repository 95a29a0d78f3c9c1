--
-- Every function while the server forgets what it caches of its catalogues each time that it
-- may: a pointer into a cache that is kept for too long leads to freed memory. Only a server
-- with assertions can forget so; others run the same calls.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\set calls :testdir /sql/calls.inc
\i :helpers
\c -
SELECT set_config('debug_discard_caches', least(max_val::int, 1)::text, false) <> '' AS forgets FROM pg_settings WHERE name = 'debug_discard_caches';
\i :calls
