--
-- The views of payments: what they say, what can be changed through them, and that what
-- is asked of them is found by index.
--
-- As a restore does: without dated partitions.
SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/payment.inc
\i :helpers

SELECT t.pay('due'), t.pay('scheduled'), t.pay('leased'), t.pay('expired'), t.pay('dead', 'q'), t.pay('sent', 'q');
SELECT created FROM outbox.enqueue('other', '{}', aggregate_id => 'other', partition_key => 'p', routing_key => 'SEPA');

-- Times and leases are set by UPDATE. claimed_at, which the view does not show, follows.
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE instruction_id = 'scheduled';
UPDATE payment_outbox_pending SET claimed_by = 'w', lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() + interval '1 hour'
WHERE instruction_id IN ('leased', 'expired', 'dead', 'sent') RETURNING instruction_id, claimed_by, lease_token IS NOT NULL AS token;
SELECT count(*) AS claimed_now FROM outbox.pending WHERE claimed_at BETWEEN created_at AND clock_timestamp();
UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE instruction_id = 'expired';
SELECT t.report('dead', 'w', 'FAILED'), t.report('sent', 'w', 'DISPATCHED'), t.report('expired', 'w', 'DISPATCHED') AS expired;
UPDATE payment_outbox_pending SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL WHERE instruction_id = 'leased' RETURNING instruction_id, claimed_by;
SELECT count(claimed_at) AS still_leased FROM outbox.pending;
UPDATE payment_outbox_pending SET claimed_by = 'x', lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() + interval '1 year', attempt_count = 3 WHERE instruction_id = 'leased';
TABLE t.payments;
-- Half a lease is no lease; the rest is the producer's; rows come and go by the functions.
SELECT t.try(s) FROM (VALUES
	($$UPDATE payment_outbox_pending SET claimed_by = 'w' WHERE instruction_id = 'due'$$),
	($$UPDATE payment_outbox_pending SET lease_token = NULL WHERE instruction_id = 'leased'$$),
	($$UPDATE payment_outbox_pending SET next_attempt_at = NULL WHERE instruction_id = 'due'$$),
	($$UPDATE payment_outbox_pending SET next_attempt_at = '-infinity' WHERE instruction_id = 'due'$$),
	($$UPDATE payment_outbox_pending SET lease_expires_at = 'infinity' WHERE instruction_id = 'leased'$$),
	($$UPDATE payment_outbox_pending SET outbox_id = gen_random_uuid()$$),
	($$UPDATE payment_outbox_pending SET instruction_id = 'x'$$),
	($$UPDATE payment_outbox_pending SET participant_id = 'x'$$),
	($$UPDATE payment_outbox_pending SET sequence_id = 0$$),
	($$UPDATE payment_outbox_pending SET idempotency_key = 'x'$$),
	($$UPDATE payment_outbox_pending SET rail_type = 'x'$$),
	($$UPDATE payment_outbox_pending SET payload = '{}'$$),
	($$UPDATE payment_outbox_pending SET created_at = now()$$),
	($$DELETE FROM payment_outbox_pending$$),
	($$INSERT INTO payment_outbox_pending (outbox_id) VALUES (gen_random_uuid())$$),
	($$TRUNCATE payment_outbox_pending$$),
	($$DELETE FROM outbox_operational_status$$),
	($$DELETE FROM participant_outbox_sequences$$),
	($$UPDATE participant_outbox_sequences SET next_sequence_id = 1$$),
	($$UPDATE supervisor_outbox_status SET pending_depth = 0$$)) v(s);
TABLE t.payments;

-- attempt_id stands for (outbox_id, attempt_no): the UUIDv8 of SHA-256, name space and name.
INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, aggregate_id, priority, payload, headers, created_at)
VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 'payment', '017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 'payment', 'rfc', 0, '{}', '{}', now());
INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 1, 'RETRYABLE'), ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 12, 'FAILED')
RETURNING attempt_id, instruction_id, attempt_no, state, completed_at IS NOT NULL AS completed, created_at IS NOT NULL AS created;
SELECT count(*) = count(DISTINCT attempt_id) AS distinct_ids, bool_and(attempt_id::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$') AS version_8
FROM payment_outbox_attempts;
-- An attempt by hand must be of a payment, and say of it what is so.
SELECT t.try(s) FROM (VALUES
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (gen_random_uuid(), 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (NULL, 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) SELECT outbox_id, 1, 'RETRYABLE' FROM outbox.messages WHERE aggregate_id = 'other'$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (t.payment('due'), 0, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no) VALUES (t.payment('due'), 1)$$),
	($$INSERT INTO payment_outbox_attempts (attempt_id, outbox_id, attempt_no, state) VALUES (gen_random_uuid(), t.payment('due'), 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, attempt_no, state) VALUES (t.payment('due'), 'x', 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, participant_id, attempt_no, state) VALUES (t.payment('due'), 'x', 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, sequence_id, attempt_no, state) VALUES (t.payment('due'), 17, 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, idempotency_key, attempt_no, state) VALUES (t.payment('due'), 'x', 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, rail_type, attempt_no, state) VALUES (t.payment('due'), 'x', 1, 'RETRYABLE')$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, payload, attempt_no, state) VALUES (t.payment('due'), '{}', 1, 'RETRYABLE')$$)) v(s);

-- Status.
SELECT pending_depth, leased_count, expired_lease_count, due_unleased_count, oldest_pending_age_seconds > 0 AS aged, dlq_depth,
	dispatched_count, failed_count, retryable_count, zombie_requeue_count FROM supervisor_outbox_status;
SELECT count(*) FROM repair_expired_leases(10, 'repairer');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE instruction_id = 'expired';
SELECT instruction_id, participant_id, sequence_id, rail_type, attempt_count, claimed_by, claimed_at IS NOT NULL AS claimed, lease_expires_at IS NOT NULL AS lease,
	last_attempt_no, last_attempt_state, last_error_code, last_error_message, last_attempt_at IS NOT NULL AS tried, derived_state,
	lease_age_seconds >= 0 AS lease_age, time_to_due > interval '0' AS later
FROM outbox_operational_status ORDER BY 1;
SELECT pending_depth, leased_count, expired_lease_count, due_unleased_count, dlq_depth, dispatched_count, failed_count, retryable_count, zombie_requeue_count FROM supervisor_outbox_status;
SELECT * FROM participant_outbox_sequences ORDER BY 1;
-- Empty, it is one row all the same.
SELECT outbox.cancel(outbox_id, 'done with', force => true) IS NOT NULL AS cancelled FROM payment_outbox_pending;
SELECT pending_depth, leased_count, oldest_pending_age_seconds FROM supervisor_outbox_status;

-- Indexes, on 10,000 payments of 200 participants among as many other messages: what the
-- proofs ask for is found without reading pending, messages or attempts. Only indexes may
-- be in these plans.
SET client_min_messages = warning;
SELECT count(*) FROM outbox.enqueue_batch('payment', (
	SELECT jsonb_agg(jsonb_build_object('event_type', 'payment', 'aggregate_id', 'n' || g, 'partition_key', 'many' || g % 200,
		'payload', '{"amount": 10, "currency": "EUR", "destination": "x"}'::jsonb)) FROM generate_series(1, 10000) g));
SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg('{"event_type": "e", "payload": 1}'::jsonb) FROM generate_series(1, 10000)));
SELECT count(*) FROM claim_outbox_batch(50, 'w', 3600);
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) SELECT outbox_id, 1, 'RETRYABLE' FROM outbox.messages WHERE aggregate_id LIKE 'n%';
VACUUM ANALYZE outbox.pending, outbox.messages_default, outbox.attempts_default;
RESET client_min_messages;
\set helpers :testdir /sql/plans.inc
\i :helpers
SELECT s AS query, t.scans(replace(s, '$1', quote_literal(t.payment('n777')))) AS scans FROM (VALUES
	(1, $$SELECT * FROM payment_outbox_pending WHERE outbox_id = $1$$),
	(2, $$SELECT * FROM payment_outbox_pending WHERE outbox_id = ANY (ARRAY[$1, $1]::uuid[])$$),
	(3, $$SELECT * FROM payment_outbox_pending WHERE participant_id = 'many17'$$),
	(4, $$SELECT * FROM payment_outbox_pending WHERE participant_id = 'many17' AND sequence_id = 3$$),
	(5, $$SELECT * FROM payment_outbox_pending WHERE claimed_by = 'w'$$),
	(6, $$SELECT * FROM payment_outbox_pending WHERE lease_expires_at <= now()$$),
	(7, $$SELECT count(*) FROM payment_outbox_pending WHERE claimed_by IS NOT NULL$$),
	(8, $$UPDATE payment_outbox_pending SET next_attempt_at = now() WHERE outbox_id = $1$$),
	(9, $$SELECT * FROM payment_outbox_attempts WHERE outbox_id = $1 ORDER BY attempt_no$$),
	(10, $$SELECT count(*) FROM payment_outbox_attempts WHERE outbox_id = $1 AND state IN ('DISPATCHED', 'FAILED')$$),
	(11, $$SELECT * FROM outbox_operational_status WHERE outbox_id = $1$$),
	(12, $$SELECT * FROM outbox_operational_status WHERE participant_id = 'many17'$$),
	(13, $$SELECT * FROM outbox_operational_status WHERE claimed_by = 'w'$$),
	(14, $$SELECT * FROM outbox_operational_status WHERE lease_expires_at <= now()$$),
	(15, $$SELECT * FROM outbox.operational_status WHERE claimed_by = 'w'$$),
	(16, $$SELECT * FROM outbox.operational_status WHERE lease_expires_at <= now()$$)) v(n, s) ORDER BY n;
-- What has been due longest: by the core's order of claims; from the view, by an index too where
-- the tables are large (here: made to), the ids before their payments.
EXPLAIN (COSTS OFF) SELECT outbox_id, next_attempt_at FROM outbox.pending WHERE queue = 'payment' AND priority = 0 AND NOT held_back AND claimed_by IS NULL
ORDER BY greatest(next_attempt_at, lease_expires_at) LIMIT 10;
SET enable_seqscan = off;
SELECT s AS query, t.scans(s) AS scans FROM (VALUES
	(1, $$SELECT outbox_id FROM payment_outbox_pending WHERE next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10$$),
	(2, $$SELECT * FROM payment_outbox_pending WHERE outbox_id = ANY (ARRAY(SELECT outbox_id FROM payment_outbox_pending WHERE next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10))$$),
	(3, $$SELECT count(*) FROM payment_outbox_pending WHERE claimed_by IS NULL AND next_attempt_at <= now()$$)) v(n, s) ORDER BY n;
RESET enable_seqscan;
-- Counts read what they count, and no more: all pending rows but not their messages; the
-- ledger only for the counts of attempts.
SELECT s AS query, t.scans(s) ~ 'messages' AS reads_messages, t.scans(s) ~ 'attempts' AS reads_attempts FROM (VALUES
	(1, $$SELECT count(*) FROM payment_outbox_pending$$),
	(2, $$SELECT pending_depth, leased_count FROM supervisor_outbox_status$$),
	(3, $$SELECT retryable_count FROM supervisor_outbox_status$$),
	(4, $$SELECT pending_count FROM outbox.status WHERE queue = 'payment'$$)) v(n, s) ORDER BY n;
-- Asked for once or four times, the ledger is read once.
SELECT count(*) FROM outbox.attempts \gset ledger_
SELECT rows_read < 2 * :ledger_count AS read_once FROM (
	SELECT sum((n ->> 'Actual Rows')::numeric * (n ->> 'Actual Loops')::numeric) AS rows_read
	FROM t.plan('SELECT dispatched_count, failed_count, retryable_count, zombie_requeue_count FROM supervisor_outbox_status') p,
		jsonb_path_query(p, 'strict $.**') n
	WHERE jsonb_typeof(n) = 'object' AND n ->> 'Node Type' LIKE '%Scan%' AND n ->> 'Relation Name' LIKE 'attempts%') r;

SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP EXTENSION outbox CASCADE;
