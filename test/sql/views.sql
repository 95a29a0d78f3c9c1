--
-- The views: status, operational_status, dead_letters, sequences.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers

SELECT outbox.create_queue('q', max_attempts => 3), outbox.create_queue('idle', paused => true);

-- Nothing yet: a row for each queue, all zero.
SELECT * FROM outbox.status ORDER BY queue;
SELECT count(*) FROM outbox.operational_status;
SELECT count(*) FROM outbox.dead_letters;

-- One message in each state.
SELECT count(*) FROM (VALUES ('due'), ('leased'), ('expired'), ('scheduled'), ('retried'), ('dead'), ('sent')) v(m), LATERAL outbox.enqueue_and_claim('w', m, to_jsonb(m), 'q', partition_key => 'k');
SELECT error FROM outbox.release('w', ARRAY[t.id('due'), t.id('scheduled')], ARRAY[t.token('due'), t.token('scheduled')]);
SELECT t.hold('scheduled'), t.expire('expired');
SELECT m.event_type, recorded FROM outbox.complete_batch('w', ARRAY[t.id('retried'), t.id('dead'), t.id('sent')],
	ARRAY[t.token('retried'), t.token('dead'), t.token('sent')], '{RETRYABLE, FAILED, DISPATCHED}',
	response_codes => '{503, 400, 200}', error_codes => '{E1, E2, NULL}', error_messages => '{m1, m2, NULL}', retry_delays => '{1 h, NULL, NULL}') r
JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
UPDATE outbox.pending SET created_at = clock_timestamp() - interval '100 s';
UPDATE outbox.pending SET next_attempt_at = clock_timestamp() - interval '50 s' WHERE outbox_id = t.id('due');
UPDATE outbox.pending SET claimed_at = clock_timestamp() - interval '20 s' WHERE outbox_id = t.id('leased');

CREATE TABLE t.times AS SELECT clock_timestamp() AS before, min(created_at) AS created, min(next_attempt_at) FILTER (WHERE outbox_id = t.id('due')) AS due, min(claimed_at) FILTER (WHERE outbox_id = t.id('leased')) AS claimed FROM outbox.pending;
SELECT queue, paused, pending_count AS pending, due_unleased_count AS due, leased_count AS leased, expired_lease_count AS expired, scheduled_count AS scheduled, dead_count AS dead,
	oldest_due_age_seconds IS NOT NULL AS due_age, oldest_pending_age_seconds IS NOT NULL AS pending_age
FROM outbox.status ORDER BY queue;
SELECT oldest_due_age_seconds BETWEEN extract(epoch FROM before - due) AND extract(epoch FROM clock_timestamp() - due) AS due_age,
	oldest_pending_age_seconds BETWEEN extract(epoch FROM before - created) AND extract(epoch FROM clock_timestamp() - created) AS pending_age
FROM outbox.status, t.times WHERE queue = 'q';

SELECT m.event_type, s.queue, s.state, s.attempt_count AS n, s.claimed_by, s.lease_expires_at IS NOT NULL AS has_lease, s.partition_key AS key,
	s.lease_age_seconds IS NOT NULL AS age, s.time_to_due > '0' AS later, s.last_attempt_no AS last, s.last_attempt_state AS last_state, s.last_error_code AS code, s.last_error_message AS message, s.last_attempt_at IS NOT NULL AS at
FROM outbox.operational_status s JOIN outbox.messages m USING (outbox_id) ORDER BY 1;
SELECT s.lease_age_seconds BETWEEN extract(epoch FROM before - claimed) AND extract(epoch FROM clock_timestamp() - claimed) AS lease_age
FROM outbox.operational_status s, t.times WHERE s.outbox_id = t.id('leased');
SELECT m.event_type, s.time_to_due + clock_timestamp() - s.next_attempt_at BETWEEN '0' AND '1 min' AS time_to_due,
	s.created_at = p.created_at AND s.claimed_at IS NOT DISTINCT FROM p.claimed_at AND s.priority = p.priority AS as_pending
FROM outbox.operational_status s JOIN outbox.pending p USING (outbox_id) JOIN outbox.messages m USING (outbox_id) ORDER BY 1;

SELECT queue, event_type, partition_key, error_code, error_message, response_code, attempts, worker_id, recorded_by, payload, headers, event_id = outbox_id AS own_event_id
FROM outbox.dead_letters;
SELECT d.created_at = m.created_at AS created_at, d.died_at = a.created_at AS died_at
FROM outbox.dead_letters d JOIN outbox.messages m USING (outbox_id) JOIN outbox.attempts a USING (outbox_id) WHERE a.state = 'FAILED';

-- Replayed: no dead letter any more, one more pending.
SELECT outbox.replay(t.id('dead')) IS NOT NULL AS replayed;
SELECT count(*) FROM outbox.dead_letters;
SELECT pending_count, dead_count FROM outbox.status WHERE queue = 'q';
-- Of a queue that is gone: the dead letter stays, status has no row.
SELECT outbox.create_queue('gone');
SELECT recorded FROM outbox.enqueue_and_claim('w', 'orphan', '1', 'gone') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED');
SELECT outbox.drop_queue('gone');
SELECT queue, event_type FROM outbox.dead_letters;
SELECT queue FROM outbox.status ORDER BY 1;

-- The clock is the wall clock, within a transaction too: a lease runs out while it is open.
BEGIN;
SELECT now() IS NOT NULL AS began;
SELECT outbox_id IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'short', '1', 'q', lease => '1 microsecond');
SELECT state FROM outbox.operational_status WHERE outbox_id = t.id('short');
ROLLBACK;

-- Times at infinity are refused, and where they stand all the same every view bears them.
SELECT t.try(s) FROM (VALUES
	($$UPDATE outbox.pending SET next_attempt_at = 'infinity' WHERE outbox_id = t.id('due')$$),
	($$UPDATE outbox.pending SET next_attempt_at = '-infinity' WHERE outbox_id = t.id('due')$$),
	($$UPDATE outbox.pending SET created_at = '-infinity' WHERE outbox_id = t.id('due')$$),
	($$UPDATE outbox.pending SET claimed_at = '-infinity' WHERE outbox_id = t.id('leased')$$),
	($$UPDATE outbox.pending SET lease_expires_at = 'infinity' WHERE outbox_id = t.id('leased')$$)) v(s);
BEGIN;
ALTER TABLE outbox.pending DROP CONSTRAINT pending_times_are_finite;
UPDATE outbox.pending SET next_attempt_at = v.at::timestamptz, created_at = v.at::timestamptz
FROM (VALUES ('due', '-infinity'), ('scheduled', 'infinity')) v(message, at) WHERE outbox_id = t.id(v.message);
UPDATE outbox.pending SET claimed_at = '-infinity', lease_expires_at = 'infinity' WHERE outbox_id = t.id('leased');
UPDATE outbox.pending SET claimed_at = 'infinity', lease_expires_at = '-infinity' WHERE outbox_id = t.id('expired');
SELECT m.event_type, s.state, s.lease_age_seconds, s.time_to_due IS NULL AS no_time FROM outbox.operational_status s JOIN outbox.messages m USING (outbox_id)
WHERE m.event_type IN ('due', 'scheduled', 'leased', 'expired') ORDER BY 1;
SELECT queue, pending_count AS pending, due_unleased_count AS due, leased_count AS leased, expired_lease_count AS expired, scheduled_count AS scheduled
FROM outbox.status WHERE queue = 'q';
SELECT length(outbox.prometheus()) > 0 AS scraped;
ROLLBACK;

-- The cost of dead letters does not grow with delivered history: what is read are
-- the index of failures and the failed messages, not the delivered ones.
SELECT count(*) FROM generate_series(1, 20) b, LATERAL (SELECT array_agg(e.outbox_id) AS ids, array_agg(e.lease_token) AS tokens, array_agg('DISPATCHED'::outbox.attempt_state) AS states
	FROM generate_series(1, 250) g, LATERAL outbox.enqueue_and_claim('w', 'delivered', to_jsonb(b * g)) e) e, LATERAL outbox.complete_batch('w', ids, tokens, states);
VACUUM ANALYZE outbox.attempts_default, outbox.messages_default;
CREATE FUNCTION t.rows_read(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, TIMING off, SUMMARY off, FORMAT json) ' || query INTO plan;
	RETURN (SELECT sum(((n ->> 'Actual Rows')::numeric + coalesce((n ->> 'Rows Removed by Filter')::numeric, 0)
			+ coalesce((n ->> 'Rows Removed by Index Recheck')::numeric, 0)) * (n ->> 'Actual Loops')::numeric)
		FROM jsonb_path_query(plan, 'strict $.**') n WHERE jsonb_typeof(n) = 'object' AND n ->> 'Node Type' LIKE '%Scan%');
END
$$;
SELECT t.rows_read('SELECT * FROM outbox.dead_letters') < 100 AS few_rows_read, (SELECT count(*) FROM outbox.attempts) > 5000 AS of_many;

-- sequences: the next number of each key.
SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT count(*) FROM generate_series(1, 5) g, LATERAL outbox.enqueue('s', to_jsonb(g), 'n', partition_key => CASE WHEN g > 3 THEN 'a' ELSE 'b' END);
SELECT * FROM outbox.sequences ORDER BY 1, 2;
-- Views are views.
SELECT t.try(s) FROM (VALUES ('DELETE FROM outbox.status'), ('DELETE FROM outbox.operational_status'), ('DELETE FROM outbox.dead_letters'), ('DELETE FROM outbox.sequences')) v(s);
