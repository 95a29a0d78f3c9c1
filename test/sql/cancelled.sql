--
-- A cancel reaches a call before the next of its items, however many it has: nothing more is
-- done for those that follow.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- The cancel is asked for when the call begins; each row that is written counts.
CREATE FUNCTION t.cancel() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN RETURN pg_cancel_backend(pg_backend_pid()); END$$;
CREATE SEQUENCE t.written;
GRANT USAGE ON SCHEMA t TO outbox_owner;
GRANT USAGE ON SEQUENCE t.written TO outbox_owner;
\set counts 'ADD CONSTRAINT counts CHECK (nextval(\'t.written\') > 0) NOT VALID'
\set show_written 'SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS written FROM t.written; ALTER SEQUENCE t.written RESTART'
SELECT outbox.create_queue('n', ordering => 'numbered');

-- Idempotency keys, which are written 16 at a time, alone and together with an event_id; numbers.
ALTER TABLE outbox.idempotency_keys :counts;
SELECT count(*) FROM outbox.enqueue_batch(CASE WHEN t.cancel() THEN 'default' END, (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g, 'idempotency_key', 'k' || g)) FROM generate_series(1, 100) g));
:show_written;
SELECT count(*) FROM outbox.enqueue_batch(CASE WHEN t.cancel() THEN 'default' END, (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g, 'idempotency_key', 'k' || g, 'event_id', gen_random_uuid())) FROM generate_series(1, 100) g));
:show_written;
ALTER TABLE outbox.idempotency_keys DROP CONSTRAINT counts;
ALTER TABLE outbox.key_numbers :counts;
SELECT count(*) FROM outbox.enqueue_batch(CASE WHEN t.cancel() THEN 'n' END, (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g, 'partition_key', 'p' || g)) FROM generate_series(1, 100) g));
:show_written;
ALTER TABLE outbox.key_numbers DROP CONSTRAINT counts;

-- Leases.
SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g)) FROM generate_series(1, 100) g));
CREATE TABLE t.held AS SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg('RETRYABLE'::text) AS states FROM outbox.claim('w', 100, '1 h');
ALTER TABLE outbox.pending :counts;
SELECT count(*) FROM t.held, outbox.renew(CASE WHEN t.cancel() THEN 'w' END, ids, tokens, '2 h');
:show_written;
SELECT count(*) FROM t.held, outbox.release(CASE WHEN t.cancel() THEN 'w' END, ids, tokens);
:show_written;
SELECT count(*) FROM t.held, outbox.complete_batch(CASE WHEN t.cancel() THEN 'w' END, ids, tokens, states);
:show_written;
ALTER TABLE outbox.pending DROP CONSTRAINT counts;
SELECT count(*) FROM t.held, outbox.complete_batch('w', ids, tokens, states) WHERE error IS NULL;

-- Names of queues, each compared with those before it: asked for before they are read.
SELECT outbox.claim('w', CASE WHEN t.cancel() THEN 1 END, queues => ARRAY['nowhere', 'nor here']);
