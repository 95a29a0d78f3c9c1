--
-- The payment interface, as a client of it knows it: enqueue, claim, complete, repair,
-- and the invariants behind them. Times are set by UPDATE of the view. (Arguments are
-- in payment_arguments, the views in payment_views, concurrency in the specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/payment.inc
\i :helpers

-- The queue is made with the policy that the contract promises.
SELECT max_attempts, backoff_base, backoff_cap, backoff_jitter, repair_delay, ordering, validator FROM outbox.queues WHERE queue = 'payment';

-- A duplicate, of (instruction, key), returns the first row, before and after its end.
SELECT * FROM enqueue_payment_outbox('i1', 'p', 'k', 'SEPA', '{"amount": 1.5, "currency": "EUR", "destination": "x"}') \gset first_
SELECT :first_sequence_id AS number, p.created_at = :'first_created_at' AS same_time, p.next_attempt_at <= clock_timestamp() AS due,
	instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_count, claimed_by, lease_token, lease_expires_at
FROM payment_outbox_pending p WHERE outbox_id = :'first_outbox_id';
SELECT outbox_id = :'first_outbox_id' AS same, sequence_id, created_at = :'first_created_at' AS same_time
FROM enqueue_payment_outbox('i1', 'other', 'k', 'SWIFT', '{"amount": 2, "currency": "USD", "destination": "y"}');
SELECT t.pay('i2'), t.pay('i1', key => 'other'), t.pay('i3', 'q');
SELECT t.claim('w');
SELECT t.report('i1', 'w', 'DISPATCHED');
SELECT outbox_id = :'first_outbox_id' AS same, sequence_id, created_at = :'first_created_at' AS same_time
FROM enqueue_payment_outbox('i1', 'p', 'k', 'SEPA', '{"amount": 1.5, "currency": "EUR", "destination": "x"}');
-- What the core sees.
SELECT queue, event_type, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key, routing_key, event_id = outbox_id AS own_event, priority, headers
FROM outbox.messages WHERE outbox_id = :'first_outbox_id';
-- Rolled back: nothing was stored and no number used up.
BEGIN;
SELECT t.pay('gone');
ROLLBACK;
SELECT t.pay('i4');
-- A number can be used up: no payment bears it.
SELECT bump_participant_outbox_seq('p'), bump_participant_outbox_seq('p'), bump_participant_outbox_seq('new');
SELECT t.pay('i5'), t.pay('i6', 'new');
TABLE t.payments;
SELECT * FROM participant_outbox_sequences ORDER BY 1;
-- Other queues are not touched: neither claimed nor repaired nor shown.
SELECT sequence_id IS NULL AS plain FROM outbox.enqueue('plain', '1', aggregate_id => 'plain');
SELECT count(*) FROM claim_outbox_batch(100, 'w', 3600);
SELECT count(*) AS plain FROM outbox.claim('plain', 1);
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second';
SELECT count(*) FROM repair_expired_leases(100, 'r');
SELECT claimed_by FROM outbox.pending WHERE queue = 'default';
SELECT count(*) FROM payment_outbox_pending WHERE instruction_id = 'plain';
SELECT outbox.cancel(outbox_id, 'done with', force => true) FROM outbox.pending;

-- Claim: what it returns, oldest due first, no more than asked; the lease as long as asked.
SELECT t.pay('c1', 'c'), t.pay('c2', 'c'), t.pay('c3', 'c');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '1 hour' WHERE instruction_id = 'c3';
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE instruction_id = 'c1';
SELECT clock_timestamp() AS before \gset
SELECT instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_count, lease_token IS NOT NULL AS token,
	lease_expires_at BETWEEN :'before'::timestamptz + interval '7777 seconds' AND clock_timestamp() + interval '7777 seconds' AS lease
FROM claim_outbox_batch(1, 'w1', 7777);
SELECT instruction_id FROM claim_outbox_batch(10, 'w2', 7777);
TABLE t.payments;
-- No attempt is written when a payment is claimed.
TABLE t.payment_ledger;

-- RETRYABLE reschedules: after the delay that was asked for, or 5 s.
SELECT clock_timestamp() AS before \gset
SELECT c.* FROM payment_outbox_pending p, complete_outbox_attempt(p.outbox_id, p.lease_token, 'w1', 'RETRYABLE',
	p_rail_reference => 'ref', p_rail_code => '503', p_error_code => 'BUSY', p_error_message => 'later', p_latency_ms => 12, p_retry_delay_seconds => 90) c
WHERE instruction_id = 'c3';
SELECT next_attempt_at BETWEEN :'before'::timestamptz + interval '90 seconds' AND clock_timestamp() + interval '90 seconds' AS in_90_s,
	attempt_count, claimed_by, lease_token, lease_expires_at FROM payment_outbox_pending WHERE instruction_id = 'c3';
SELECT clock_timestamp() AS before \gset
SELECT t.report('c2', 'w2', 'RETRYABLE');
SELECT next_attempt_at BETWEEN :'before'::timestamptz + interval '5 seconds' AND clock_timestamp() + interval '5 seconds' AS in_5_s
FROM payment_outbox_pending WHERE instruction_id = 'c2';
-- Not before; then yes.
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour';
SELECT t.claim('w');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() WHERE instruction_id = 'c3';
SELECT t.claim('w');
-- attempt_count by GREATEST: a cache that was ahead stays, one that was behind catches up.
UPDATE payment_outbox_pending SET attempt_count = 7 WHERE instruction_id = 'c3';
SELECT t.report('c3', 'w', 'RETRYABLE');
SELECT attempt_count FROM payment_outbox_pending WHERE instruction_id = 'c3';
UPDATE payment_outbox_pending SET attempt_count = 0, next_attempt_at = clock_timestamp() WHERE instruction_id = 'c3';
SELECT t.claim('w'), t.report('c3', 'w', 'RETRYABLE');
SELECT attempt_count FROM payment_outbox_pending WHERE instruction_id = 'c3';
TABLE t.payment_ledger;

-- A lease that expires is repaired with one ZOMBIE_REQUEUE, attempt_no = last + 1,
-- attempt_count by GREATEST; the row is unleased, and due after the repair delay of 1 s.
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() WHERE instruction_id IN ('c2', 'c3');
SELECT count(*) FROM claim_outbox_batch(10, 'lost', 3600);
UPDATE payment_outbox_pending SET attempt_count = 9, lease_expires_at = clock_timestamp() - interval '1 second' WHERE instruction_id = 'c2';
UPDATE payment_outbox_pending SET attempt_count = 1, lease_expires_at = clock_timestamp() - interval '1 second' WHERE instruction_id = 'c3';
SELECT clock_timestamp() AS before \gset
SELECT instruction_id, attempt_no FROM repair_expired_leases(10, 'repairer') JOIN payment_outbox_pending USING (outbox_id) ORDER BY 1;
SELECT instruction_id, attempt_count, num_nonnulls(claimed_by, lease_token, lease_expires_at) AS lease,
	next_attempt_at BETWEEN :'before'::timestamptz + interval '1 second' AND clock_timestamp() + interval '1 second' AS in_1_s
FROM payment_outbox_pending WHERE instruction_id IN ('c2', 'c3') ORDER BY 1;
SELECT * FROM t.payment_ledger WHERE state = 'ZOMBIE_REQUEUE';
SELECT DISTINCT recorded_by FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE';
SELECT count(*) FROM repair_expired_leases(10, 'repairer');
-- No more than asked; at least one. A claim that finds one records it likewise.
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp();
SELECT count(*) FROM claim_outbox_batch(10, 'lost', 3600);
UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 second';
SELECT count(*) FROM repair_expired_leases(1, 'repairer');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE claimed_by IS NULL;
SELECT count(*) FROM claim_outbox_batch(10, 'finder', 3600);
SELECT state, count(*) FROM t.payments GROUP BY 1 ORDER BY 1;
SELECT count(*) AS zombies FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE';

-- A stale worker gets P7002, whichever way it lost the lease; the new holder succeeds.
SELECT t.pay('s', 's');
SELECT outbox_id, lease_token FROM claim_outbox_batch(1, 'old', 3600) \gset old_
UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE outbox_id = :'old_outbox_id';
SELECT t.try(format('SELECT complete_outbox_attempt(%L, %L, ''old'', ''DISPATCHED'')', :'old_outbox_id', :'old_lease_token'));
SELECT count(*) FROM repair_expired_leases(10, 'repairer');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '1 hour' WHERE outbox_id = :'old_outbox_id';
SELECT outbox_id = :'old_outbox_id' AS the_same, lease_token FROM claim_outbox_batch(1, 'new', 3600) \gset new_
SELECT t.try(format('SELECT complete_outbox_attempt(%L, %L, ''old'', ''DISPATCHED'')', :'old_outbox_id', :'old_lease_token'));
SELECT t.try(format('SELECT complete_outbox_attempt(%L, %L, ''old'', ''DISPATCHED'')', :'old_outbox_id', :'new_lease_token'));
SELECT * FROM complete_outbox_attempt(:'old_outbox_id', :'new_lease_token', 'new', 'DISPATCHED', 'ref');
SELECT t.try(format('SELECT complete_outbox_attempt(%L, %L, ''new'', ''DISPATCHED'')', :'old_outbox_id', :'new_lease_token'));
SELECT * FROM t.payment_ledger WHERE payment = 's';
SELECT count(*) AS pending FROM payment_outbox_pending WHERE outbox_id = :'old_outbox_id';

-- The ceiling: the 20th ledger row is the last, and FAILED; the cached count is not asked.
SELECT t.pay('x', 'x');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '1 hour', attempt_count = 25 WHERE instruction_id = 'x';
DO $$
BEGIN
	FOR n IN 1 .. 19 LOOP
		ASSERT t.claim('w') = 'x', 'it is claimed again';
		ASSERT t.report('x', 'w', 'RETRYABLE') = n::text, 'one row more';
		UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '1 hour' WHERE instruction_id = 'x';
	END LOOP;
END
$$;
SELECT * FROM t.payments WHERE payment = 'x';
SELECT t.claim('w'), t.report('x', 'w', 'RETRYABLE');
SELECT no, state, error_code, completed FROM t.payment_ledger WHERE payment = 'x' AND no >= 19;
SELECT count(*) AS pending FROM payment_outbox_pending WHERE instruction_id = 'x';
-- The worker's own code stays. A lease that is lost at the ceiling is the end as well.
SELECT t.pay('x1', 'x'), t.pay('x2', 'x'), t.pay('x3', 'x');
INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) SELECT outbox_id, n, 'RETRYABLE' FROM payment_outbox_pending, generate_series(1, 19) n WHERE participant_id = 'x';
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '1 hour' WHERE participant_id = 'x';
SELECT count(*) FROM claim_outbox_batch(3, 'w', 3600);
SELECT c.* FROM payment_outbox_pending p, complete_outbox_attempt(p.outbox_id, p.lease_token, 'w', 'RETRYABLE', p_error_code => 'BUSY') c WHERE instruction_id = 'x1';
UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 hour' WHERE instruction_id = 'x2';
SELECT attempt_no FROM repair_expired_leases(1, 'repairer');
UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 hour' WHERE instruction_id = 'x3';
SELECT count(*) FROM claim_outbox_batch(10, 'finder', 3600);
SELECT payment, no, state, worker_id, error_code, completed FROM t.payment_ledger WHERE payment IN ('x1', 'x2', 'x3') AND no > 19;
SELECT count(*) AS pending FROM payment_outbox_pending WHERE participant_id = 'x';

-- The ledger. A plain INSERT works, in the view and in the table; changes do not.
SELECT t.pay('l', 'l');
INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at, worker_id)
SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, 1, 'RETRYABLE', clock_timestamp(), 'by hand' FROM payment_outbox_pending WHERE instruction_id = 'l';
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (t.payment('l'), 2, 'RETRYABLE');
SELECT t.try(s) FROM (VALUES
	($$UPDATE payment_outbox_attempts SET worker_id = 'me' WHERE instruction_id = 'l'$$),
	($$DELETE FROM payment_outbox_attempts WHERE instruction_id = 'l'$$),
	($$TRUNCATE payment_outbox_attempts$$),
	($$UPDATE outbox.attempts SET worker_id = 'me'$$),
	($$DELETE FROM outbox.attempts$$),
	($$TRUNCATE outbox.attempts$$),
	($$TRUNCATE outbox.attempts_default$$),
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (t.payment('l'), 2, 'RETRYABLE')$$),
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (t.payment('l'), 2, 'RETRYABLE')$$)) v(s);
SELECT * FROM t.payment_ledger WHERE payment = 'l';
-- A second terminal attempt is impossible: by hand 23505, by completion P7001.
INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (t.payment('l'), 3, 'DISPATCHED');
SELECT t.try(s) FROM (VALUES
	($$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (t.payment('l'), 4, 'FAILED')$$),
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (t.payment('l'), 4, 'DISPATCHED', now())$$)) v(s);
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '2 hours' WHERE instruction_id = 'l';
SELECT t.claim('w');
SELECT t.try(format('SELECT complete_outbox_attempt(%L, %L, ''w'', ''FAILED'')', outbox_id, lease_token)) FROM payment_outbox_pending WHERE instruction_id = 'l';
-- Each partition has the index, whose name ends as clients expect.
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT DISTINCT regexp_replace(indexname, '_p[0-9]{8}(_[0-9]{4})?_', '_dated_') AS index, indexdef ~ 'UNIQUE .* \(outbox_id\) WHERE \(state = ANY' AS definition
FROM pg_indexes WHERE schemaname = 'outbox' AND indexname LIKE '%\_one\_terminal\_per\_outbox' ORDER BY 1;

-- FAILED ends a payment, and it is a dead letter.
SELECT t.pay('f', 'f');
UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() - interval '2 hours' WHERE instruction_id = 'f';
SELECT t.claim('w'), t.report('f', 'w', 'FAILED');
SELECT attempts FROM outbox.dead_letters WHERE aggregate_id = 'f';
SELECT * FROM outbox.check() WHERE severity = 'error';

SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP EXTENSION outbox CASCADE;
