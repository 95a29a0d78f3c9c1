--
-- Batches that are looked up by walks along the primary keys (id_walk.h): what they answer
-- does not depend on how the ids lie.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
-- As a restore does: without dated partitions.
SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
CREATE EXTENSION outbox;
RESET client_min_messages;
SELECT outbox.create_queue('q', max_attempts => NULL);

-- 2000 messages, in the order of their ids.
SELECT count(*) FROM outbox.enqueue_batch('q', (SELECT jsonb_agg(jsonb_build_object('event_type', 'm' || g, 'payload', g)) FROM generate_series(1, 2000) g));

-- More than one chunk of a claim, each with its own message.
BEGIN;
SELECT count(*), count(DISTINCT outbox_id), count(DISTINCT lease_token), bool_and(event_type = 'm' || (payload)::text) AS own_message,
	min(payload::int), max(payload::int)
FROM outbox.claim('w', 1500, queues => '{q}');
ROLLBACK;

-- Leased in another order than that of the ids, and far apart from each other.
UPDATE outbox.pending p SET next_attempt_at = now() - interval '1 h' - n * interval '1 s'
FROM (SELECT outbox_id, substr(event_type, 2)::int AS n FROM outbox.messages) m
WHERE m.outbox_id = p.outbox_id AND n % 50 = 0;
CREATE TABLE held AS SELECT * FROM outbox.claim('w', 40, queues => '{q}') WITH ORDINALITY;
SELECT string_agg(event_type, ' ' ORDER BY ordinality) FROM held;
-- Half of them tried before; a message may have been tried more often than another.
CREATE FUNCTION report(state text) RETURNS TABLE (n int, attempt_no int, recorded outbox.attempt_state, error text) LANGUAGE sql AS $$
	SELECT h.payload::int, r.attempt_no, r.recorded, r.error
	FROM (SELECT array_agg(outbox_id ORDER BY ordinality) ids, array_agg(lease_token ORDER BY ordinality) tokens FROM held) a,
		outbox.complete_batch('w', ids, tokens, array_fill(state::outbox.attempt_state, ARRAY[cardinality(ids)]),
			retry_delays => array_fill(CASE state WHEN 'RETRYABLE' THEN interval '0' END, ARRAY[cardinality(ids)])) WITH ORDINALITY r
	JOIN held h ON h.outbox_id = r.outbox_id ORDER BY r.ordinality
$$;
SELECT count(*), min(n), max(n), attempt_no, recorded, error FROM report('RETRYABLE') GROUP BY 4, 5, 6;
-- The same report again: lost, and told what was recorded under the token.
SELECT count(*), attempt_no, recorded, error FROM report('DISPATCHED') GROUP BY 2, 3, 4;

-- Messages side by side, of which some were tried once: numbers go on from their own ledger.
DROP TABLE held;
UPDATE outbox.pending p SET next_attempt_at = now() - interval '2 h' + substr(m.event_type, 2)::int * interval '1 s'
FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND substr(m.event_type, 2)::int BETWEEN 91 AND 160;
CREATE TABLE held AS SELECT * FROM outbox.claim('w', 70, queues => '{q}') WITH ORDINALITY;
-- One of them is ended by hand, one is lost, one not there, one reported twice.
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, worker_id, recorded_by, completed_at)
SELECT outbox_id, 7, 'FAILED', 'hand', 'hand', now() FROM held WHERE payload = '95';
UPDATE held SET lease_token = gen_random_uuid() WHERE payload = '96';
INSERT INTO held (outbox_id, lease_token, payload, ordinality) VALUES ('00000000-0000-7000-8000-000000000000', gen_random_uuid(), '0', 71);
INSERT INTO held SELECT * FROM held WHERE payload = '97';
SELECT string_agg(DISTINCT n::text, ' '), attempt_no, recorded, error FROM report('DISPATCHED') WHERE n NOT BETWEEN 100 AND 150 GROUP BY 2, 3, 4 ORDER BY 2, 3, 4;
SELECT string_agg(n::text, ' ' ORDER BY n), attempt_no, state FROM (
	SELECT m.payload::int AS n, a.attempt_no, a.state FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id)
	WHERE m.payload::int BETWEEN 95 AND 101) a GROUP BY 2, 3 ORDER BY 2, 3;
SELECT count(*) FILTER (WHERE m.payload::int BETWEEN 91 AND 160) AS left_of_them, count(*) FROM outbox.pending JOIN outbox.messages m USING (outbox_id);

-- Ids of several partitions in one batch: twenty of the week after the next.
SELECT count(*) > 0 AS has_partitions FROM outbox.maintain();
CREATE TABLE later AS SELECT n, (lpad(to_hex((extract(epoch FROM now() + interval '14 d') * 1000)::bigint + n), 12, '0') ||
	'7000800000000000' || lpad(n::text, 4, '0'))::uuid AS id FROM generate_series(1, 20) n;
INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, aggregate_id, priority, payload, headers, created_at)
SELECT id, 'q', id, 'n' || n, '', 0, to_jsonb(10000 + n), '{}', now() FROM later;
INSERT INTO outbox.pending (outbox_id, queue) SELECT id, 'q' FROM later;
SELECT count(DISTINCT tableoid::regclass) AS partitions FROM outbox.messages;
DROP TABLE held, later;
UPDATE outbox.pending SET next_attempt_at = now() - interval '1 d';
CREATE TABLE held AS SELECT * FROM outbox.claim('w', 3000, queues => '{q}') WITH ORDINALITY;
SELECT count(*), attempt_no, recorded, error FROM report('DISPATCHED') GROUP BY 2, 3, 4 ORDER BY 2, 3, 4;
SELECT tableoid::regclass <> 'outbox.attempts_default'::regclass AS in_later_partition, count(*), count(DISTINCT outbox_id)
FROM outbox.attempts WHERE state IN ('DISPATCHED', 'FAILED') GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM outbox.pending;
DROP TABLE held;
