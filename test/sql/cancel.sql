--
-- cancel: ends a pending message as FAILED / CANCELLED; a live lease needs force.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT count(*) FROM generate_series(1, 5) g, outbox.enqueue('m' || g, to_jsonb(g));

-- Waiting: one terminal attempt with the reason; the message is a dead letter.
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT outbox.cancel(t.id('m1'), 'ordered twice') AS attempt_no;
SELECT attempt_no, state, worker_id, lease_token, claimed_at, completed_at BETWEEN :'before' AND clock_timestamp() AS completed_at,
	error_code, error_message, recorded_by IS NOT NULL AS recorded_by FROM outbox.attempts;
COMMIT;
SELECT message, state FROM t.pending;
SELECT event_type, error_code, error_message, attempts FROM outbox.dead_letters;
-- Scheduled, or tried before: the next number.
SELECT t.hold('m2');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (t.id('m2'), 3, 'RETRYABLE');
SELECT outbox.cancel(t.id('m2'), 'r', false) AS attempt_no;
-- In a paused queue.
SELECT outbox.pause('default');
SELECT outbox.cancel(t.id('m3'), 'r') AS attempt_no;
SELECT outbox.resume('default');

-- Leased: refused, and nothing changes; with force the worker loses its lease.
SELECT event_type, lease_token AS token FROM outbox.claim('w', 1) \gset
\echo :event_type
SELECT t.try($$SELECT outbox.cancel(t.id('m4'), 'r')$$);
SELECT message, state, claimed_by FROM t.pending;
SELECT t.try($$SELECT outbox.cancel(t.id('m4'), 'r', NULL)$$);
SELECT outbox.cancel(t.id('m4'), 'r', force => true) AS attempt_no;
SELECT t.try(format('SELECT outbox.complete(t.id(''m4''), %L, ''w'', ''DISPATCHED'')', :'token'));
SELECT * FROM t.ledger WHERE message = 'm4';
-- An expired lease needs no force.
SELECT event_type FROM outbox.claim('w', 1);
SELECT t.expire('m5');
SELECT outbox.cancel(t.id('m5'), 'r') AS attempt_no;
SELECT message, no, state, error_code FROM t.ledger WHERE message = 'm5';
SELECT count(*) AS pending FROM outbox.pending;

-- P7005: nothing to act on: cancelled before, delivered, never there.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'done', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'DISPATCHED');
SELECT outbox.cancel('00000000-0000-7000-8000-000000000001', 'r');
\echo :SQLSTATE
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.cancel(t.id('m1'), 'again')$$),
	($$SELECT outbox.cancel(t.id('done'), 'r', true)$$)) AS v(s);
-- P7001: pending, though the ledger says that it has ended.
SELECT created FROM outbox.enqueue('ended', '1');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (t.id('ended'), 1, 'DISPATCHED', clock_timestamp());
SELECT t.try($$SELECT outbox.cancel(t.id('ended'), 'r')$$);
-- Bad arguments.
SELECT created FROM outbox.enqueue('kept', '1');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.cancel(NULL, 'r')$$),
	($$SELECT outbox.cancel(t.id('kept'), NULL)$$),
	($$SELECT outbox.cancel(t.id('kept'), '')$$)) AS v(s);
SELECT message, state FROM t.pending;
-- Rolled back: it goes on.
BEGIN;
SELECT outbox.cancel(t.id('kept'), 'r');
ROLLBACK;
SELECT event_type FROM outbox.claim('w') WHERE event_type = 'kept';
