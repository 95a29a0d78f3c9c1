--
-- complete: the outcome in the ledger and in pending for each state, the ceiling,
-- the delay of a retry, and each refusal with its DETAIL. (Races: isolation specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q', max_attempts => 3, backoff_base => '10 s', backoff_cap => '15 s', backoff_jitter => 0),
	outbox.create_queue('free', max_attempts => NULL);

-- DISPATCHED: one attempt with all that was reported, under the lease it was tried;
-- the pending row goes.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'sent', '1', 'q') \gset
SELECT claimed_at AS claimed FROM outbox.pending WHERE outbox_id = :'id' \gset
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT * FROM outbox.complete(:'id', :'token', 'w', 'DISPATCHED', 'ref-1', '250', 'EC', 'a message', 42);
SELECT clock_timestamp() AS after \gset
COMMIT;
SELECT attempt_no, state, worker_id, lease_token = :'token' AS token, claimed_at = :'claimed' AS claimed_at,
	completed_at BETWEEN :'before' AND :'after' AS completed_at, reference, response_code, error_code, error_message, latency_ms,
	recorded_by, created_at BETWEEN :'before' AND :'after' AS created_at
FROM outbox.attempts WHERE outbox_id = :'id';
SELECT count(*) AS pending FROM outbox.pending;

-- FAILED: the same, by name, with nothing reported.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'failed', '1', 'q') \gset
SELECT * FROM outbox.complete(state => 'FAILED', worker_id => 'w', lease_token => :'token', outbox_id => :'id');
SELECT attempt_no, state, completed_at IS NOT NULL AS completed, reference, response_code, error_code, error_message, latency_ms, recorded_by
FROM outbox.attempts WHERE outbox_id = :'id';
SELECT count(*) AS pending FROM outbox.pending;

-- RETRYABLE: the lease is cleared, the row rescheduled by the queue's backoff.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'retried', '1', 'q') \gset
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT attempt_no, recorded, next_attempt_at AS next FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE', error_code => 'E1', latency_ms => 0) \gset
SELECT clock_timestamp() AS after \gset
COMMIT;
SELECT :attempt_no AS attempt_no, :'recorded' AS recorded,
	:'next'::timestamptz BETWEEN :'before'::timestamptz + interval '10 s' AND :'after'::timestamptz + interval '10 s' AS backoff;
SELECT next_attempt_at = :'next' AS next, attempt_count, claimed_by, claimed_at, lease_token, lease_expires_at FROM outbox.pending;
SELECT attempt_no, state, completed_at, error_code, latency_ms FROM outbox.attempts WHERE outbox_id = :'id';
-- The second time the cap, or the delay that is asked for; attempt_count grows along.
SELECT t.due('retried');
SELECT lease_token AS token, attempt_count FROM outbox.claim('w2', queues => '{q}') \gset
\echo :attempt_count
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT attempt_no, recorded, next_attempt_at BETWEEN :'before'::timestamptz + interval '15 s' AND clock_timestamp() + interval '15 s' AS cap
FROM outbox.complete(:'id', :'token', 'w2', 'RETRYABLE');
ROLLBACK;
SELECT clock_timestamp() AS before \gset
SELECT attempt_no, recorded, next_attempt_at BETWEEN :'before'::timestamptz + interval '2 days' AND clock_timestamp() + interval '2 days' AS as_asked
FROM outbox.complete(:'id', :'token', 'w2', 'RETRYABLE', retry_delay => '2 days');
SELECT message, attempts, state FROM t.pending;
-- The third is the last: FAILED, with RETRIES_EXHAUSTED unless a code is given.
SELECT t.due('retried');
SELECT lease_token AS token, attempt_count FROM outbox.claim('w', queues => '{q}') \gset
\echo :attempt_count
BEGIN;
SELECT * FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE', error_code => 'MINE', error_message => 'why');
SELECT * FROM t.ledger WHERE message = 'retried';
ROLLBACK;
SELECT * FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE', error_message => 'why');
SELECT * FROM t.ledger WHERE message = 'retried';
SELECT completed_at IS NOT NULL AS completed FROM outbox.attempts WHERE outbox_id = :'id' AND attempt_no = 3;
SELECT count(*) AS pending FROM outbox.pending;
-- The message's own ceiling goes before the queue's, in both directions.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'own 1', '1', 'q', max_attempts => 1) e,
	LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'RETRYABLE');
SELECT recorded FROM outbox.enqueue_and_claim('w', 'own 1', '1', 'free', max_attempts => 1) e,
	LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'RETRYABLE');
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'own 5', '1', 'q', max_attempts => 5) \gset
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (:'id', 3, 'RETRYABLE');
SELECT attempt_no, recorded FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE');
SELECT message, attempts FROM t.pending WHERE message = 'own 5';
-- No ceiling: no last attempt. The number is the ledger's greatest + 1, gaps or not,
-- and the cached count never shrinks.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'free', '1', 'free') \gset
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (:'id', 1000, 'RETRYABLE');
UPDATE outbox.pending SET attempt_count = 5000 WHERE outbox_id = :'id';
SELECT attempt_no, recorded FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE');
SELECT message, attempts FROM t.pending WHERE message = 'free';
-- A ceiling that the queue got meanwhile holds.
SELECT t.due('free');
SELECT lease_token AS token FROM outbox.claim('w', queues => '{free}') \gset
SELECT outbox.alter_queue('free', max_attempts => 10);
SELECT * FROM outbox.complete(:'id', :'token', 'w', 'RETRYABLE');

-- retry_delay of nothing: due at once. It is for RETRYABLE.
SELECT e.outbox_id AS id, c.next_attempt_at <= clock_timestamp() AS due_at_once
FROM outbox.enqueue_and_claim('w', 'at once', '1', 'q') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'RETRYABLE', retry_delay => '0') c \gset
\echo :due_at_once
SELECT event_type FROM outbox.claim('w', queues => '{q}');
SELECT t.try(format('SELECT outbox.complete(%L, %L, %L, %L, retry_delay => ''1 hour'')', :'id', t.token('at once'), 'w', s)) FROM unnest('{DISPATCHED,FAILED,ZOMBIE_REQUEUE}'::text[]) s;
SELECT recorded FROM outbox.complete(:'id', t.token('at once'), 'w', 'DISPATCHED', retry_delay => NULL);

-- Drivers that send typed text just work: text, varchar, and as a parameter.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'text', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'DISPATCHED'::text);
SELECT recorded FROM outbox.enqueue_and_claim('w', 'varchar', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'DISPATCHED'::varchar(20));
PREPARE done(text) AS SELECT recorded FROM outbox.enqueue_and_claim('w', 'param', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', $1);
EXECUTE done('FAILED');
DEALLOCATE done;
SELECT t.try($$SELECT outbox.complete(t.id('text'), t.id('text'), 'w', 'dispatched'::text)$$);

-- P7002: no lease that matches and is unexpired; the DETAIL says what is so.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'leased', '1', 'q') \gset
INSERT INTO t.known VALUES (:'token', 'its token'), ('00000000-0000-4000-8000-000000000000', 'another token');
CREATE TABLE t.before AS SELECT * FROM outbox.pending WHERE outbox_id = :'id';
SELECT * FROM outbox.complete('00000000-0000-7000-8000-000000000001', '00000000-0000-4000-8000-000000000000', 'w', 'DISPATCHED');
\echo :SQLSTATE
-- held under another token
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'id', '00000000-0000-4000-8000-000000000000'));
-- held by another worker, whose token somebody else shows
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''thief'', ''DISPATCHED'')', :'id', :'token'));
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''W'', ''DISPATCHED'')', :'id', :'token'));
-- nothing of it happened
SELECT count(*) FROM (SELECT * FROM outbox.pending WHERE outbox_id = :'id' EXCEPT SELECT * FROM t.before) changed;
SELECT count(*) AS attempts FROM outbox.attempts WHERE outbox_id = :'id';
-- expired at ...
SELECT t.expire('leased');
SELECT lease_expires_at AS expired FROM outbox.pending WHERE outbox_id = :'id' \gset
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'id', :'token'));
DO $$ BEGIN
	PERFORM outbox.complete(t.id('leased'), t.token('leased'), 'w', 'DISPATCHED');
EXCEPTION WHEN SQLSTATE 'P7002' THEN
	DECLARE detail text;
	BEGIN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
		RAISE NOTICE 'the time of its expiry: %', strpos(detail, (SELECT lease_expires_at::text FROM outbox.pending WHERE outbox_id = t.id('leased'))) > 0;
	END;
END $$;
-- not leased at all: given back, or retried under another token
SELECT outbox_id AS id2, lease_token AS token2 FROM outbox.enqueue_and_claim('w', 'released', '1', 'q') \gset
SELECT error FROM outbox.release('w', ARRAY[:'id2']::uuid[], ARRAY[:'token2']::uuid[]);
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'id2', :'token2'));
-- completed under this very token: with the number of the attempt, whether the
-- message has ended or waits for its next try
SELECT outbox_id AS id3, lease_token AS token3 FROM outbox.enqueue_and_claim('w', 'said', '1', 'q') \gset
SELECT attempt_no, recorded FROM outbox.complete(:'id3', :'token3', 'w', 'RETRYABLE', retry_delay => '0');
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''RETRYABLE'')', :'id3', :'token3'));
SELECT event_type FROM outbox.claim('w2', queues => '{q}') ORDER BY 1;
SELECT t.token('said') AS token4 \gset
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''RETRYABLE'')', :'id3', :'token3'));
SELECT attempt_no, recorded FROM outbox.complete(:'id3', :'token4', 'w2', 'DISPATCHED');
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''DISPATCHED'')', :'id3', :'token3'));
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w2'', ''DISPATCHED'')', :'id3', :'token4'));
-- ended under somebody else's
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w2'', ''DISPATCHED'')', :'id3', '00000000-0000-4000-8000-000000000000'));

-- P7001: the lease is held, but the ledger already has a terminal attempt.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'ended', '1', 'q') \gset
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (:'id', 1, 'FAILED', clock_timestamp());
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', %L)', :'id', :'token', s)) FROM (VALUES ('DISPATCHED'), ('FAILED'), ('RETRYABLE')) v(s);
SELECT message, no, state FROM t.ledger WHERE message = 'ended';
SELECT message, state FROM t.pending WHERE message = 'ended';

-- P7003: what completion may not record.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'zombie', '1', 'q') \gset
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''ZOMBIE_REQUEUE'')', :'id', :'token'));
SELECT message, state FROM t.pending WHERE message = 'zombie';

-- Bad arguments, before anything else.
SELECT t.try(format(s, :'id', :'token')) FROM (VALUES
	('SELECT outbox.complete(NULL, %2$L, ''w'', ''DISPATCHED'')'),
	('SELECT outbox.complete(%1$L, NULL, ''w'', ''DISPATCHED'')'),
	('SELECT outbox.complete(%1$L, %2$L, NULL, ''DISPATCHED'')'),
	('SELECT outbox.complete(%1$L, %2$L, '''', ''DISPATCHED'')'),
	('SELECT outbox.complete(%1$L, %2$L, ''w'', NULL)'),
	('SELECT outbox.complete(%1$L, %2$L, ''w'', ''DONE'')'),
	('SELECT outbox.complete(%1$L, %2$L, ''w'', ''DISPATCHED'', latency_ms => -1)'),
	('SELECT outbox.complete(%1$L, %2$L, ''w'', ''RETRYABLE'', retry_delay => ''-1 s'')'),
	('SELECT outbox.complete(%1$L, %2$L, ''w'', ''RETRYABLE'', retry_delay => ''178000000 years'')')) AS v(s);
SELECT count(*) AS attempts FROM outbox.attempts WHERE outbox_id = :'id';
SELECT message, state FROM t.pending WHERE message = 'zombie';

-- B06 (Oban): a late report of an old attempt changes nothing. Ceiling 2.
SELECT outbox_id AS id, lease_token AS t1 FROM outbox.enqueue_and_claim('w1', 'b06', '1', 'q', max_attempts => 2) \gset
SELECT t.expire('b06');
SELECT attempt_no, state, lost_by FROM outbox.repair_expired_leases(queues => '{q}') WHERE outbox_id = :'id';
SELECT t.due('b06');
SELECT count(*) > 0 AS claimed FROM outbox.claim('w2', 100, queues => '{q}');
SELECT lease_token AS t2 FROM outbox.pending WHERE outbox_id = :'id' \gset
SELECT attempt_no, recorded FROM outbox.complete(:'id', :'t2', 'w2', 'RETRYABLE');
INSERT INTO t.known VALUES (:'t1', 'first token');
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w1'', %L)', :'id', :'t1', s)) FROM (VALUES ('RETRYABLE'), ('DISPATCHED'), ('FAILED')) v(s);
SELECT * FROM t.ledger WHERE message = 'b06';
SELECT count(*) AS pending FROM outbox.pending WHERE outbox_id = :'id';
SELECT event_type, attempts, error_code FROM outbox.dead_letters WHERE outbox_id = :'id';

-- B24 (PgQue): what a caller says of a message is not believed. Only the owned id
-- moves, and the dead letter is the message as it was stored.
SELECT outbox_id AS other FROM outbox.enqueue('b24 other', '{"mine": true}', 'q') \gset
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'b24', '{"stored": 1}', 'q') \gset
SELECT t.try(format('SELECT outbox.complete(%L, %L, ''w'', ''FAILED'')', i, :'token'))
FROM (VALUES (1, '00000000-0000-7000-8000-000000000001'), (2, :'other')) v(n, i) ORDER BY n;
SELECT t.try(format('SELECT outbox.complete(%L, gen_random_uuid(), ''w'', ''FAILED'')', :'id'));
SELECT b.outbox_id = :'id' AS own, attempt_no, recorded, error
FROM outbox.complete_batch('w', ARRAY[:'other', :'id', '00000000-0000-7000-8000-000000000001']::uuid[], array_fill(:'token'::uuid, '{3}'), '{FAILED, FAILED, FAILED}') b;
SELECT event_type, payload, attempts FROM outbox.dead_letters WHERE event_type LIKE 'b24%';
SELECT message, state FROM t.pending WHERE message LIKE 'b24%';

-- B16 (odd-jobs): a report of any length.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'long report', '1') e,
	LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED', repeat('r', 20000), repeat('c', 20000), repeat('e', 20000), repeat('m', 20000));
SELECT length(reference), length(response_code), length(error_code), length(error_message) FROM outbox.attempts WHERE outbox_id = t.id('long report');
