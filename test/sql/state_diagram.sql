--
-- state_diagram: the whole state machine as Graphviz DOT. What stands here is what
-- the contract says can happen to a message, and nothing else.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

\pset format unaligned
\pset tuples_only on
SELECT outbox.state_diagram();
