--
-- The views: status, operational_status, dead_letters, sequences.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

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

-- What is not asked for is not read: neither messages nor attempts, with a constant queue or id either.
\set helpers :testdir /sql/plans.inc
\i :helpers
SELECT t.id('due') AS due \gset
SELECT s AS query, t.reads(replace(s, '$1', quote_literal(:'due')), 'messages') AS messages, t.reads(replace(s, '$1', quote_literal(:'due')), 'attempts') AS attempts FROM (VALUES
	(1, $$SELECT * FROM outbox.status$$),
	(2, $$SELECT pending_count, dead_count FROM outbox.status WHERE queue = 'q'$$),
	(3, $$SELECT outbox_id, state, claimed_by FROM outbox.operational_status$$),
	(4, $$SELECT outbox_id, state FROM outbox.operational_status WHERE outbox_id = $1$$),
	(5, $$SELECT last_error_code FROM outbox.operational_status WHERE outbox_id = $1$$),
	(6, $$SELECT * FROM outbox.operational_status WHERE queue = 'q'$$),
	(7, $$SELECT outbox_id, died_at FROM outbox.dead_letters WHERE queue = 'gone'$$),
	(8, $$SELECT error_code FROM outbox.dead_letters WHERE queue = 'gone'$$),
	(9, $$SELECT event_type, payload FROM outbox.dead_letters WHERE queue = 'gone'$$),
	(10, $$SELECT count(*) FROM outbox.dead_letters$$)) v(n, s) ORDER BY n;
-- Of the partitions, they lock those alone in which messages lie that they show.
SELECT count(*) >= 3 AS dated FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass;
\c -
SET client_min_messages = warning;
BEGIN;
SELECT count(*) FROM outbox.status;
SELECT count(*) > 0 AS pending FROM outbox.operational_status s WHERE s IS NOT NULL OR s.last_error_code IS NULL;
SELECT count(*), count(payload) FROM outbox.dead_letters;
SELECT length(outbox.prometheus()) > 0 AS scraped;
SELECT i.inhparent::regclass AS parent, count(*) AS locked FROM pg_locks l JOIN pg_inherits i ON i.inhrelid = l.relation
WHERE l.pid = pg_backend_pid() AND i.inhparent::regclass::text ~ '^outbox' GROUP BY 1 ORDER BY 1;
COMMIT;
-- Conditions reach the tables' indexes through the views.
SET enable_seqscan = off;
SELECT s AS query, t.scans(s) AS scans FROM (VALUES
	(1, $$SELECT * FROM outbox.operational_status WHERE outbox_id = '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'$$),
	(2, $$SELECT * FROM outbox.operational_status WHERE claimed_by = 'w'$$),
	(3, $$SELECT * FROM outbox.operational_status WHERE lease_expires_at <= now()$$),
	(4, $$SELECT * FROM outbox.dead_letters WHERE outbox_id = '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'$$),
	(5, $$SELECT * FROM outbox.dead_letters WHERE queue = 'q' AND acknowledged_at IS NULL$$)) v(n, s) ORDER BY n;
RESET enable_seqscan;

-- A look reads so many entries for each question; without totals there is at least what it read.
SELECT count(*) FROM outbox.enqueue_batch('q', (SELECT jsonb_agg(jsonb_build_object('event_type', 'more', 'payload', 1, 'priority', g % 3,
	'deliver_at', CASE WHEN g > 50 THEN now() + interval '1 day' END)) FROM generate_series(1, 100) g));
CREATE FUNCTION t.status() RETURNS TABLE (pending int, due int, leased int, expired int, scheduled int, counts text, due_age boolean, pending_age boolean) LANGUAGE sql AS $$
	SELECT pending_count, due_unleased_count, leased_count, expired_lease_count, scheduled_count, counts, oldest_due_age_seconds > 40, oldest_pending_age_seconds > 90
	FROM outbox.status WHERE queue = 'q'
$$;
SELECT * FROM t.status();
SET outbox.count_limit = 55;
SELECT * FROM t.status();
SET outbox.count_limit = 20;
SELECT pending BETWEEN 40 AND 100 AS pending, due BETWEEN 15 AND 50 AS due, leased, expired, scheduled BETWEEN 15 AND 50 AS scheduled, counts, due_age, pending_age FROM t.status();
SELECT regexp_matches(outbox.prometheus(), E'\noutbox_counts_exact\\{queue="(default|q)"\\} (\\d)', 'g');
-- Many queues share what five may read.
SET outbox.count_limit = 200;
SELECT counts FROM t.status();
SELECT count(outbox.create_queue('many ' || g)) FROM generate_series(1, 30) g;
SELECT counts FROM t.status();
SET outbox.count_limit = 2000;
SELECT counts FROM t.status();
SELECT count(outbox.drop_queue('many ' || g)) FROM generate_series(1, 30) g;
-- As often as there are rows, at most.
SET outbox.count_limit = 1;
SELECT pending <= 2 * (1 + 15 * 16) AS few, counts FROM t.status();
SELECT t.try('SET outbox.count_limit = 0');
RESET outbox.count_limit;

-- Acknowledged: it counts no more, and is still to be seen and to be replayed.
SELECT outbox.create_queue('d');
SELECT count(*) FROM (SELECT outbox.enqueue('d' || g, to_jsonb(g), 'd') FROM generate_series(1, 4) g) e;
SELECT outbox.cancel(outbox_id, 'broken') FROM outbox.pending WHERE queue = 'd';
SELECT dead_count FROM outbox.status WHERE queue = 'd';
SELECT outbox.acknowledge_dead(t.id('d1'), 'known'), outbox.acknowledge_dead(t.id('d2'), 'known');
SELECT outbox.acknowledge_dead(t.id('d1'), 'again');
SELECT event_type, error_code, payload, acknowledged_at >= died_at AS acknowledged, acknowledged_by = session_user AS by_me, reason FROM outbox.dead_letters WHERE queue = 'd' ORDER BY 1;
SELECT dead_count FROM outbox.status WHERE queue = 'd';
SELECT outbox.replay(t.id('d1')) IS NOT NULL AS replayed, outbox.replay(t.id('d3')) IS NOT NULL AS and_one_that_was_not;
SELECT dead_count, pending_count FROM outbox.status WHERE queue = 'd';
SELECT event_type, reason FROM outbox.dead_letters WHERE queue = 'd' ORDER BY 1;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.acknowledge_dead(t.id('d3'), 'too late')$$),
	($$SELECT outbox.acknowledge_dead(t.id('due'), 'not dead')$$),
	($$SELECT outbox.acknowledge_dead(gen_random_uuid(), 'no message')$$),
	($$SELECT outbox.acknowledge_dead(NULL, 'x')$$),
	($$SELECT outbox.acknowledge_dead(t.id('d4'), NULL)$$),
	($$SELECT outbox.acknowledge_dead(t.id('d4'), '')$$)) v(s);
BEGIN;
SET LOCAL TRANSACTION READ ONLY;
SELECT t.try($$SELECT outbox.acknowledge_dead(t.id('d4'), 'read only')$$);
ROLLBACK;
BEGIN;
SELECT outbox.acknowledge_dead(t.id('d4'), 'rolled back');
SELECT dead_count FROM outbox.status WHERE queue = 'd';
ROLLBACK;
SELECT dead_count FROM outbox.status WHERE queue = 'd';
-- A row that is there by hand stops nothing.
SELECT outbox_id FROM outbox.enqueue('by hand', '1', 'd') \gset
INSERT INTO outbox.dead (outbox_id, queue, died_at) VALUES (:'outbox_id', 'd', now());
SELECT outbox.cancel(:'outbox_id', 'broken');
SELECT count(*) FROM outbox.dead_letters WHERE outbox_id = :'outbox_id';
DELETE FROM outbox.dead WHERE outbox_id = :'outbox_id';
SELECT outbox.replay(:'outbox_id') IS NOT NULL AS replayed;
-- One look-up finds a message, or its last attempt, in whichever partition it lies.
SELECT (outbox.message_facts(t.id('d4'))).event_type, (outbox.message_body(t.id('d4'))).payload, (outbox.last_attempt(t.id('d4'))).error_code,
	outbox.message_facts(gen_random_uuid()) IS NULL AS no_message, outbox.last_attempt(NULL) IS NULL AS no_id;

-- sequences: the next number of each key.
SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT count(*) FROM generate_series(1, 5) g, LATERAL outbox.enqueue('s', to_jsonb(g), 'n', partition_key => CASE WHEN g > 3 THEN 'a' ELSE 'b' END);
SELECT * FROM outbox.sequences ORDER BY 1, 2;
-- Views are views.
SELECT t.try(s) FROM (VALUES ('DELETE FROM outbox.status'), ('DELETE FROM outbox.operational_status'), ('DELETE FROM outbox.dead_letters'), ('DELETE FROM outbox.sequences')) v(s);
-- In a parallel query, where the leader calls the function.
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SELECT count(s) > 100 AS asked FROM pg_class, outbox.queue_status(relname::text) s;
COMMIT;
