--
-- complete_and_claim: complete_batch and then claim, in one statement. What each does alone
-- is tested there; here, that both do it, in this order, and that neither spoils the other.
-- (Several workers at once: race_complete_and_claim.)
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q', lease => '2 hours', max_attempts => 3, backoff_base => '1 day', backoff_cap => '1 day'), outbox.create_queue('r');

-- At its start a worker has nothing to report.
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue('m' || g, to_jsonb(g), 'q');
SELECT created FROM outbox.enqueue('full', '{"v": [1, null]}', 'r', 'customer', 'c-1', 'key', 'once',
	'00000000-0000-4000-8000-000000000001', '{"h": 1}', 'route', 7, NULL, 9);
SELECT kind, event_type FROM outbox.complete_and_claim('w', '{}', '{}', '{}', batch_size => 2, queues => '{q}');

-- What was completed comes first, in input order, then what was claimed. All columns of both.
BEGIN;
SELECT clock_timestamp() AS before \gset
CREATE TABLE t.answer AS SELECT row_number() OVER () AS row, a.* FROM outbox.complete_and_claim('w',
	ARRAY[t.id('m2'), t.id('m1')], ARRAY[t.token('m2'), t.token('m1')], '{RETRYABLE, DISPATCHED}',
	'{r2, r1}', '{c2, c1}', '{e2, NULL}', '{why, NULL}', '{2, 1}', '{1 hour, NULL}', 5, '1 hour', '{r, q}') a;
SELECT clock_timestamp() AS after \gset
COMMIT;
SELECT row, kind, (SELECT event_type FROM outbox.messages m WHERE m.outbox_id = a.outbox_id) AS message, attempt_no, recorded, error,
	next_attempt_at BETWEEN :'before'::timestamptz + interval '1 hour' AND :'after'::timestamptz + interval '1 hour' AS next
FROM t.answer a ORDER BY 1;
SELECT row, num_nonnulls(queue, event_id, event_type, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key, routing_key, priority,
	payload, headers, attempt_count, max_attempts, created_at, lease_token, lease_expires_at) AS of_a_message,
	num_nonnulls(attempt_no, recorded, next_attempt_at, error) AS of_a_report
FROM t.answer ORDER BY 1;
SELECT queue, event_id, event_type, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key, routing_key, priority,
	payload, headers, attempt_count, max_attempts FROM t.answer WHERE event_type = 'full';
SELECT a.event_type, a.created_at = m.created_at AS created_at, a.lease_token = p.lease_token AS token, a.lease_expires_at = p.lease_expires_at AS expires,
	p.claimed_by, p.lease_expires_at - p.claimed_at AS lease
FROM t.answer a JOIN outbox.messages m USING (outbox_id) JOIN outbox.pending p USING (outbox_id) WHERE kind = 'claimed' ORDER BY row;
SELECT message, no, state, worker_id, error_code, error_message, completed, recorded_by FROM t.ledger;
SELECT reference, response_code, latency_ms FROM outbox.attempts ORDER BY 1;
SELECT message, attempts, state, claimed_by FROM t.pending;

-- Left out: ten, each queue's lease, the queue default.
SELECT count(*) FROM generate_series(1, 12) g, outbox.enqueue('d' || g, '1');
SELECT kind, count(*), min(lease_expires_at - clock_timestamp()) > interval '20 s' AS lease FROM outbox.complete_and_claim('d', '{}', '{}', '{}') GROUP BY 1;

-- Bad items are answered, and stop neither the others nor the claim. Reported again, because
-- the reply was lost: what was recorded, and the next batch.
SELECT t.id('d1') AS i1, t.token('d1') AS t1, t.id('d2') AS i2, t.token('d2') AS t2 \gset
UPDATE outbox.pending SET lease_expires_at = next_attempt_at WHERE outbox_id = :'i2';
SELECT kind, attempt_no, recorded, error, event_type FROM outbox.complete_and_claim('d',
	ARRAY[NULL, :'i1', :'i2', :'i1']::uuid[], ARRAY[:'t1', :'t1', :'t2', :'t1']::uuid[], '{FAILED, FAILED, DISPATCHED, DISPATCHED}', batch_size => 1);
SELECT kind, attempt_no, recorded, error, event_type FROM outbox.complete_and_claim('d', ARRAY[:'i1']::uuid[], ARRAY[:'t1']::uuid[], '{FAILED}', batch_size => 1);
-- d2's lease was lost: whoever claimed it has recorded that.
SELECT message, no, state, worker_id, error_code, recorded_by FROM t.ledger WHERE message = 'd2';

-- Rescheduled without delay, a message is due: this very call may lease it again, under
-- another token, as the second attempt. By the queue's backoff it is not.
SELECT t.id('m3') AS i3, t.token('m3') AS t3 \gset
SELECT kind, attempt_no, recorded, next_attempt_at <= clock_timestamp() AS due, event_type, attempt_count, lease_token <> :'t3' AS another
FROM outbox.complete_and_claim('w', ARRAY[:'i3']::uuid[], ARRAY[:'t3']::uuid[], '{RETRYABLE}', retry_delays => '{0}', queues => '{q}');
SELECT kind, attempt_no, recorded, event_type
FROM outbox.complete_and_claim('w', ARRAY[:'i3']::uuid[], ARRAY[t.token('m3')], '{RETRYABLE}', queues => '{q}');
SELECT message, no, state FROM t.ledger WHERE message = 'm3';

-- What is wrong with the arguments of either is refused (before anything is written: the spec).
SELECT count(*) AS attempts FROM outbox.attempts \gset before_
SELECT t.try(format('SELECT outbox.complete_and_claim(%s)', a)) FROM (VALUES
	($$NULL, '{}', '{}', '{}'$$),
	($$'', '{}', '{}', '{}'$$),
	($$'w', NULL, '{}', '{}'$$),
	($$'w', ARRAY[t.id('full')], '{}', '{DISPATCHED}'$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', latencies_ms => '{}'$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', batch_size => 0$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', batch_size => NULL$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', lease => '0'$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', queues => '{q, NULL}'$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', queues => '{{q}, {r}}'$$),
	($$'w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', queues => '{q, nowhere}'$$)) v(a);
SELECT count(*) - :before_attempts AS written FROM outbox.attempts;
SELECT message, state FROM t.pending WHERE message = 'full';

-- A paused queue: reports go on. No queue, likewise.
SELECT count(*) FROM outbox.enqueue('waits', '1', 'r');
SELECT outbox.pause('r');
SELECT kind, recorded, event_type FROM outbox.complete_and_claim('w', ARRAY[t.id('full')], ARRAY[t.token('full')], '{DISPATCHED}', queues => '{r}');
SELECT outbox.resume('r');
SELECT t.try($$SELECT outbox.complete_and_claim('w', '{}', '{}', '{}', queues => '{}')$$);

-- A row that somebody's CHECK refuses stops neither the reports nor the other leases; nor
-- does a report that it refuses stop the claim.
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue('c' || g, '1', 'r', priority => 9 - g);
ALTER TABLE outbox.pending ADD CONSTRAINT mine CHECK (claimed_by <> 'c' OR priority <> 7);
ALTER TABLE outbox.attempts_default ADD CONSTRAINT mine CHECK (reference <> 'refused');
SET client_min_messages = error;
SELECT kind, recorded, error, event_type FROM outbox.complete_and_claim('d', ARRAY[t.id('d3'), t.id('d4')], ARRAY[t.token('d3'), t.token('d4')], '{DISPATCHED, DISPATCHED}',
	'{refused, NULL}', queues => '{r}', batch_size => 1);
SELECT kind, recorded, error, event_type FROM outbox.complete_and_claim('c', '{}', '{}', '{}', queues => '{r}');
RESET client_min_messages;
SELECT message, state, claimed_by FROM t.pending WHERE queue = 'r' OR message IN ('d3', 'd4');
ALTER TABLE outbox.pending DROP CONSTRAINT mine;
ALTER TABLE outbox.attempts_default DROP CONSTRAINT mine;

-- Undone together.
SELECT count(*) AS attempts FROM outbox.attempts \gset before_
BEGIN;
SELECT kind, recorded, event_type FROM outbox.complete_and_claim('d', ARRAY[t.id('d5')], ARRAY[t.token('d5')], '{DISPATCHED}', queues => '{r}');
ROLLBACK;
SELECT count(*) - :before_attempts AS written FROM outbox.attempts;
SELECT message, state, claimed_by FROM t.pending WHERE message IN ('c2', 'd5');

-- A thousand, and the next thousand.
SELECT count(*) FROM generate_series(1, 2000) g, outbox.enqueue('bulk', to_jsonb(g), 'q');
SELECT count(*) FROM outbox.complete_and_claim('b', '{}', '{}', '{}', batch_size => 1000, queues => '{q}');
SELECT kind, count(*), count(recorded) AS recorded, count(error) AS errors, count(DISTINCT a.lease_token) AS leases
FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg('DISPATCHED'::outbox.attempt_state) AS states FROM outbox.pending WHERE claimed_by = 'b') held,
	LATERAL outbox.complete_and_claim('b', ids, tokens, states, batch_size => 1000, queues => '{q}') a GROUP BY 1 ORDER BY 1;
