--
-- Arguments of the payment functions: NULL where it has no default is 22004 and names
-- the argument; values that are out of range are 22023; states come as text as well.
--
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/payment.inc
\i :helpers

-- Each argument without a default, NULL by itself, the others valid.
SELECT t.pay('i');
SELECT t.claim('w');
CREATE FUNCTION t.calls() RETURNS TABLE (f text, call text) LANGUAGE sql AS $$
	WITH args(f, arg, value) AS (VALUES
		('enqueue_payment_outbox', 'p_instruction_id', '''n'''), ('enqueue_payment_outbox', 'p_participant_id', '''p'''),
		('enqueue_payment_outbox', 'p_idempotency_key', '''k'''), ('enqueue_payment_outbox', 'p_rail_type', '''SEPA'''),
		('enqueue_payment_outbox', 'p_payload', '''{"amount": 10, "currency": "EUR", "destination": "x"}'''),
		('bump_participant_outbox_seq', 'p_participant_id', '''p'''),
		('claim_outbox_batch', 'p_batch_size', '1'), ('claim_outbox_batch', 'p_worker_id', '''w'''), ('claim_outbox_batch', 'p_lease_seconds', '3600'),
		('complete_outbox_attempt', 'p_outbox_id', quote_literal((SELECT outbox_id FROM payment_outbox_pending WHERE instruction_id = 'i'))),
		('complete_outbox_attempt', 'p_lease_token', quote_literal((SELECT lease_token FROM payment_outbox_pending WHERE instruction_id = 'i'))),
		('complete_outbox_attempt', 'p_worker_id', '''w'''), ('complete_outbox_attempt', 'p_state', '''RETRYABLE'''),
		('repair_expired_leases', 'p_batch_size', '1'), ('repair_expired_leases', 'p_worker_id', '''w'''))
	SELECT n.f, format('SELECT %I(%s)', n.f, string_agg(a.arg || ' => ' || CASE a.arg WHEN n.arg THEN 'NULL' ELSE a.value END, ', '))
	FROM args n JOIN args a USING (f) GROUP BY n.f, n.arg ORDER BY n.f, n.arg
$$;
SELECT f, t.try(call) FROM t.calls();
-- Nothing came of it.
TABLE t.payments;
TABLE t.payment_ledger;
SELECT count(*) FROM outbox.messages;

-- Values.
SELECT t.try(s) FROM (VALUES
	($$SELECT claim_outbox_batch(0, 'w', 3600)$$),
	($$SELECT claim_outbox_batch(-1, 'w', 3600)$$),
	($$SELECT claim_outbox_batch(1, '', 3600)$$),
	($$SELECT claim_outbox_batch(1, 'w', 0)$$),
	($$SELECT claim_outbox_batch(1, 'w', -60)$$),
	($$SELECT repair_expired_leases(0, 'w')$$),
	($$SELECT repair_expired_leases(1, '')$$),
	($$SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', 'DONE') FROM payment_outbox_pending$$),
	($$SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', 'ZOMBIE_REQUEUE') FROM payment_outbox_pending$$),
	($$SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', 'RETRYABLE', p_latency_ms => -1) FROM payment_outbox_pending$$),
	($$SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', 'RETRYABLE', p_retry_delay_seconds => -1) FROM payment_outbox_pending$$)) v(s);
TABLE t.payment_ledger;

-- The state as an unknown literal, as text, varchar, the core's enum and the domain; a
-- delay of 0 makes it due at once.
PREPARE by_text(text) AS SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', $1, p_retry_delay_seconds => 0) FROM payment_outbox_pending;
PREPARE by_varchar(varchar) AS SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', $1, p_retry_delay_seconds => 0) FROM payment_outbox_pending;
PREPARE by_enum(outbox.attempt_state) AS SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', $1, p_retry_delay_seconds => 0) FROM payment_outbox_pending;
PREPARE by_domain(outbox_attempt_state) AS SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', $1, p_retry_delay_seconds => 0) FROM payment_outbox_pending;
EXECUTE by_text('RETRYABLE');
SELECT t.claim('w');
EXECUTE by_varchar('RETRYABLE');
SELECT t.claim('w');
EXECUTE by_enum('RETRYABLE');
SELECT t.claim('w');
EXECUTE by_domain('RETRYABLE');
SELECT t.claim('w');
-- Positional, as in the signature; the domain itself has only the states of the core.
SELECT complete_outbox_attempt(outbox_id, lease_token, 'w', 'DISPATCHED', 'reference', 'code', 'error', 'message', 3, 4) FROM payment_outbox_pending;
SELECT no, state, rail_reference, rail_code, error_code, error_message, latency_ms FROM t.payment_ledger;
SELECT t.try($$SELECT 'DISPATCHING'::outbox_attempt_state$$);
-- States in the views compare with literals.
SELECT count(*) FROM payment_outbox_attempts WHERE state = 'RETRYABLE' OR state IN ('FAILED', 'DISPATCHED');

-- Keys of any length, but a participant of more than about 2,700 bytes does not fit into
-- its index; names that would be SQL are not.
SELECT t.pay(repeat('i', 5000), repeat('p', 1000), repeat('k', 5000)), t.pay(repeat('i', 5000), repeat('p', 1000), repeat('k', 5000));
SELECT t.pay('''; DROP TABLE outbox.pending; --', '"p"', '%s$1', E'\\');
SELECT left(t.try(format('SELECT t.pay(''long'', %L)', (SELECT string_agg(encode(sha256(n::text::bytea), 'base64'), '') FROM generate_series(1, 100) n))), 5) AS long LIMIT 1;
SELECT left(instruction_id, 40) AS instruction, left(participant_id, 10) AS participant, sequence_id, left(idempotency_key, 10) AS key, rail_type FROM payment_outbox_pending ORDER BY 1;

SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP EXTENSION outbox CASCADE;
