--
-- A message whose partition was detached by hand stops no other.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.alter_queue('default', repair_delay => '0');
-- In the DEFAULT partitions, of a time before all others: due, leased, and lost.
INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, payload, headers, priority, created_at)
SELECT id, 'default', id, 'old ' || n, '1', '{}', 0, now() FROM generate_series(1, 6) n, LATERAL (SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid AS id) i;
INSERT INTO outbox.pending (outbox_id, queue) SELECT outbox_id, queue FROM outbox.messages;
SELECT event_type FROM outbox.claim('lost', 2) ORDER BY 1;
SELECT event_type FROM outbox.claim('holds', 2) ORDER BY 1;
-- In dated ones: the same.
SELECT count(*) FROM outbox.maintain();
SELECT count(*) FROM generate_series(1, 6) n, outbox.enqueue('new ' || n, '1', deliver_at => now() - interval '1 day' + n * interval '1 min');
UPDATE outbox.pending p SET claimed_by = 'lost', claimed_at = now() - interval '1 h', lease_token = gen_random_uuid(), lease_expires_at = now() - interval '1 min'
FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND m.event_type IN ('new 1', 'new 2');
UPDATE outbox.pending p SET claimed_by = 'holds', claimed_at = now(), lease_token = gen_random_uuid(), lease_expires_at = now() + interval '1 h'
FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND m.event_type IN ('new 3', 'new 4');
SELECT t.expire('old 1'), t.expire('old 2');
CREATE TABLE t.types AS SELECT outbox_id, event_type FROM outbox.messages;
CREATE FUNCTION t.type(id uuid) RETURNS text LANGUAGE sql AS 'SELECT event_type FROM t.types WHERE outbox_id = id';

\set VERBOSITY default
\set SHOW_CONTEXT never
-- Without the partition of attempts: what needs no ledger is leased.
BEGIN;
ALTER TABLE outbox.attempts DETACH PARTITION outbox.attempts_default;
\pset format unaligned
SELECT severity, object, problem FROM outbox.check() WHERE object = 'outbox.attempts';
\pset format aligned
SELECT event_type FROM outbox.claim('w') ORDER BY 1;
ROLLBACK;
-- Repair does the rest, with one WARNING.
BEGIN;
ALTER TABLE outbox.attempts DETACH PARTITION outbox.attempts_default;
SELECT t.type(outbox_id), state FROM outbox.repair_expired_leases() ORDER BY 1;
-- A batch of reports: the item's own error.
SELECT t.type(c.outbox_id), recorded, c.error FROM outbox.complete_batch('holds', ARRAY(SELECT outbox_id FROM outbox.pending WHERE claimed_by = 'holds' ORDER BY 1),
	ARRAY(SELECT lease_token FROM outbox.pending WHERE claimed_by = 'holds' ORDER BY outbox_id), array_fill('DISPATCHED'::outbox.attempt_state, '{4}')) c ORDER BY 1;
ROLLBACK;
-- Without that of messages.
BEGIN;
ALTER TABLE outbox.messages DETACH PARTITION outbox.messages_default;
\pset format unaligned
SELECT severity, object, problem FROM outbox.check() WHERE object = 'outbox.messages';
\pset format aligned
SELECT event_type FROM outbox.claim('w') ORDER BY 1;
SELECT event_type FROM outbox.claim('w', 1) ORDER BY 1;
ROLLBACK;
\set VERBOSITY terse
