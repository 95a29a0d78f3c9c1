--
-- state_diagram: the whole state machine as Graphviz DOT. What stands here is what
-- the contract says can happen to a message, and nothing else.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers

\pset format unaligned
\pset tuples_only on
SELECT outbox.state_diagram();
