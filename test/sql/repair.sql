--
-- repair_expired_leases: every lost lease leaves exactly one ledger row, and the
-- message goes on, or ends at the ceiling. (Races: the isolation specs.)
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q', repair_delay => '5 min'), outbox.create_queue('r', repair_delay => '0', max_attempts => 2);
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue_and_claim('lost', 'q' || g, '1', 'q');

-- Only what has expired. The row is due after the queue's repair_delay, unleased;
-- the ledger has one ZOMBIE_REQUEUE under the lost lease.
SELECT * FROM outbox.repair_expired_leases();
SELECT t.expire('q1');
SELECT outbox_id AS id, lease_token AS token, claimed_at AS claimed FROM outbox.pending WHERE outbox_id = t.id('q1') \gset
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT outbox_id = :'id' AS id, attempt_no, state, lost_by FROM outbox.repair_expired_leases();
SELECT clock_timestamp() AS after \gset
COMMIT;
SELECT attempt_no, state, worker_id, lease_token = :'token' AS token, claimed_at = :'claimed' AS claimed_at, completed_at,
	reference, response_code, error_code, recorded_by, created_at BETWEEN :'before' AND :'after' AS created_at
FROM outbox.attempts;
SELECT attempt_count, claimed_by, claimed_at, lease_token, lease_expires_at,
	next_attempt_at BETWEEN :'before'::timestamptz + interval '5 min' AND :'after'::timestamptz + interval '5 min' AS repair_delay
FROM outbox.pending WHERE outbox_id = :'id';
SELECT * FROM t.pending;
-- Once.
SELECT * FROM outbox.repair_expired_leases();

-- attempt_no is the ledger's greatest + 1, attempt_count never shrinks.
SELECT t.expire('q2'), t.expire('q3');
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (t.id('q2'), 4, 'RETRYABLE');
UPDATE outbox.pending SET attempt_count = 9 WHERE outbox_id = t.id('q2');
SELECT m.event_type, attempt_no, r.state, lost_by FROM outbox.repair_expired_leases(worker_id => 'the repairer') r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT message, attempts, state FROM t.pending;
SELECT message, no, state, worker_id, error_code, recorded_by FROM t.ledger WHERE message IN ('q2', 'q3');

-- B07 (Oban): the ceiling holds where nobody ever reports. Ceiling 2: two lost
-- leases end the message, by repair alone; B08 (Graphile): the message behind it
-- on the same key is claimed, nothing hidden holds it.
SELECT count(*) FROM generate_series(1, 2) g, outbox.enqueue('r' || g, to_jsonb(g), 'r', partition_key => 'k');
CREATE FUNCTION t.lose(n int) RETURNS TABLE (round int, claimed bigint, repaired text) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		round := i;
		SELECT count(*) INTO claimed FROM outbox.claim('w' || round, 1, '100 ms', '{r}');
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE queue = 'r' AND claimed_by IS NOT NULL;
		SELECT string_agg(m.event_type || ' ' || r.attempt_no || ' ' || r.state || ' ' || r.lost_by, ', ') INTO repaired
		FROM outbox.repair_expired_leases(queues => '{r}') r JOIN outbox.messages m USING (outbox_id);
		RETURN NEXT;
	END LOOP;
END
$$;
SELECT * FROM t.lose(5);
SELECT * FROM t.ledger WHERE message LIKE 'r_';
SELECT event_type, error_code, attempts, worker_id, recorded_by FROM outbox.dead_letters ORDER BY 1;
SELECT message, attempts, state FROM t.pending WHERE queue = 'r';

-- The message's own ceiling; a queue without one.
SELECT outbox.create_queue('free', max_attempts => NULL, repair_delay => '0');
SELECT count(*) FROM (VALUES ('own', 1), ('free', NULL)) v(m, n), LATERAL outbox.enqueue_and_claim('w', m, '1', 'free', max_attempts => n);
INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (t.id('free'), 32767, 'RETRYABLE');
SELECT t.expire('own'), t.expire('free');
SELECT m.event_type, attempt_no, r.state, lost_by FROM outbox.repair_expired_leases() r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;

-- Queues: only those named, in a batch of at most so many; paused ones too.
SELECT outbox.create_queue('a'), outbox.create_queue('b');
SELECT count(*) FROM generate_series(1, 4) g, (VALUES ('a'), ('b')) v(q), LATERAL outbox.enqueue_and_claim('w', q || g, '1', q);
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE queue IN ('a', 'b');
SELECT outbox.pause('a');
SELECT count(*) FROM outbox.repair_expired_leases(3, queues => '{b}');
SELECT queue, count(*) FROM outbox.operational_status WHERE state = 'expired' GROUP BY 1 ORDER BY 1;
SELECT t.try($$SELECT outbox.repair_expired_leases(queues => '{}')$$);
SELECT count(*) FROM outbox.repair_expired_leases(queues => '{a, a}');
SELECT count(*) FROM outbox.repair_expired_leases();
SELECT count(*) FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE m.queue IN ('a', 'b');

-- One row that cannot be repaired stops no other: it is reported, and stays as it
-- was (the warning holds an id: not shown here). The ledger refuses one worker.
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue_and_claim(CASE g WHEN 2 THEN 'bad' ELSE 'w' END, 'x' || g, '1', 'b');
SELECT t.expire('x1'), t.expire('x2'), t.expire('x3');
UPDATE outbox.pending SET lease_expires_at = lease_expires_at - interval '1 h' WHERE outbox_id = t.id('x2');
ALTER TABLE outbox.attempts_default ADD CONSTRAINT refused CHECK (worker_id <> 'bad');
SET client_min_messages = error;
SELECT count(*) FROM outbox.repair_expired_leases(1);
SELECT count(*) FROM outbox.repair_expired_leases();
RESET client_min_messages;
SELECT message, attempts, state, claimed_by FROM t.pending WHERE message LIKE 'x_';
ALTER TABLE outbox.attempts_default DROP CONSTRAINT refused;
SELECT m.event_type, attempt_no, r.state, lost_by FROM outbox.repair_expired_leases() r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;

-- Nor does one whose ledger has a terminal attempt already, by hand: nothing is
-- appended after that, at the ceiling or below it, in repair and in claim.
SELECT count(*) FROM (VALUES ('y1', NULL), ('y2', 1), ('y3', NULL)) v(m, n), LATERAL outbox.enqueue_and_claim('w', m, '1', 'b', max_attempts => n);
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at)
SELECT t.id(m), 1, 'DISPATCHED', clock_timestamp() FROM (VALUES ('y1'), ('y2')) v(m);
SELECT t.expire('y1'), t.expire('y2'), t.expire('y3');
SET client_min_messages = error;
SELECT m.event_type, attempt_no, r.state, lost_by FROM outbox.repair_expired_leases() r JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT t.due('y3');
SELECT event_type FROM outbox.claim('w2', queues => '{b}') WHERE event_type LIKE 'y%';
RESET client_min_messages;
SELECT message, no, state FROM t.ledger WHERE message LIKE 'y_';
SELECT t.lose($$outbox_id IN (t.id('y1'), t.id('y2'))$$);

-- What is refused.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.repair_expired_leases(NULL)$$),
	($$SELECT outbox.repair_expired_leases(0)$$),
	($$SELECT outbox.repair_expired_leases(-5)$$),
	($$SELECT outbox.repair_expired_leases(worker_id => NULL)$$),
	($$SELECT outbox.repair_expired_leases(worker_id => '')$$),
	($$SELECT outbox.repair_expired_leases(queues => '{nowhere}')$$),
	($$SELECT outbox.repair_expired_leases(queues => '{a, NULL}')$$),
	($$SELECT outbox.repair_expired_leases(queues => '{{a}, {b}}')$$)) AS v(s);
