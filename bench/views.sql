-- The fixture of bench/views, and how a plan is read. psql variables: pending (rows), dead (share of the ended), seed.
--
-- What is spread, and how: of the pending messages 40 % are payments, 30 % events of m10, 20 %
-- of the queue default, 10 % of ten other queues; 20,000 participants, of whom a few have
-- most; enqueued over the last 14 days, so that they lie in the DEFAULT partition and in the
-- present one; a fifth scheduled, the others due; one of a thousand leased, by 50 workers,
-- a tenth of these leases lost; a tenth has failed before, once to three times. A fifth as
-- many have ended, a share of them as dead letters. One event of a hundred has no id yet.
\set ON_ERROR_STOP 1
\set QUIET 1
SET client_min_messages = warning;
CREATE EXTENSION outbox;
CREATE EXTENSION outbox_payment;
CREATE EXTENSION outbox_m10;
SELECT outbox.create_queue('other ' || n) FROM generate_series(0, 9) n \g /dev/null
SELECT outbox.maintain() \g /dev/null
ANALYZE outbox.queues;

SELECT setseed(:seed / 2147483648.0) \g /dev/null
CREATE UNLOGGED TABLE fixture AS
SELECT n, n > :pending AS ended,
	CASE WHEN k < 40 THEN 'payment' WHEN k < 70 THEN 'm10' WHEN k < 90 THEN 'default' ELSE 'other ' || n % 10 END AS queue,
	'participant ' || floor(20000 * power(random(), 3)) AS participant,
	created_at,
	(substr(ms, 1, 8) || '-' || substr(ms, 9, 4) || '-7' || substr(h, 1, 3) || '-a' || substr(h, 4, 3) || '-' || substr(h, 7, 12))::uuid AS outbox_id,
	random() < 0.001 AS leased,
	random() < 0.1 AS lost,
	random() < 0.2 AS scheduled,
	CASE WHEN random() < 0.1 THEN 1 + floor(3 * random())::int ELSE 0 END AS attempts,
	CASE WHEN random() < :dead THEN 'FAILED' ELSE 'DISPATCHED' END AS outcome
FROM (
	SELECT n, floor(100 * random()) AS k, md5(random()::text || n) AS h, created_at,
		lpad(to_hex((1000 * extract(epoch FROM created_at))::bigint), 12, '0') AS ms
	FROM generate_series(1, :pending + :pending / 5) n
	CROSS JOIN LATERAL (SELECT now() - interval '14 days' * (((n::bigint * 7919) % 1000003) / 1000003.0) AS created_at) c) r;
CREATE UNLOGGED TABLE numbered AS
SELECT n, row_number() OVER (PARTITION BY participant ORDER BY outbox_id) AS sequence_id FROM fixture WHERE queue = 'payment';

INSERT INTO outbox.messages
SELECT f.outbox_id, f.queue, f.outbox_id, CASE f.queue WHEN 'payment' THEN 'payment' ELSE 'event' END,
	CASE f.queue WHEN 'payment' THEN NULL ELSE 'aggregate' END, 'instruction ' || f.n, CASE f.queue WHEN 'payment' THEN f.participant END,
	s.sequence_id, CASE f.queue WHEN 'payment' THEN 'key' END, CASE f.queue WHEN 'payment' THEN 'rail ' || f.n % 5 END, 0, NULL,
	jsonb_build_object('amount', f.n, 'currency', 'EUR', 'destination', 'account ' || f.n, 'text', repeat('x', 100)), '{}', NULL, f.created_at
FROM fixture f LEFT JOIN numbered s USING (n) ORDER BY f.outbox_id;
INSERT INTO outbox.pending
SELECT f.outbox_id, f.queue, 0, CASE f.queue WHEN 'payment' THEN f.participant END, s.sequence_id, f.attempts, NULL,
	CASE WHEN f.scheduled AND NOT f.leased THEN now() + interval '1 day' * random() ELSE f.created_at END, f.created_at,
	CASE WHEN f.leased THEN 'worker ' || f.n % 50 END, CASE WHEN f.leased THEN now() - interval '10 minutes' END,
	CASE WHEN f.leased THEN f.outbox_id END, CASE WHEN f.leased THEN now() + CASE WHEN f.lost THEN interval '-5 minutes' ELSE interval '1 day' END END
FROM fixture f LEFT JOIN numbered s USING (n) WHERE NOT f.ended ORDER BY f.outbox_id;
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, worker_id, claimed_at, completed_at, latency_ms, error_code)
SELECT outbox_id, no, CASE WHEN no > attempts THEN outcome ELSE 'RETRYABLE' END::outbox.attempt_state, 'worker ' || n % 50, created_at,
	CASE WHEN no > attempts THEN created_at END, 10, CASE WHEN no <= attempts OR outcome = 'FAILED' THEN 'E' END
FROM fixture CROSS JOIN LATERAL generate_series(1, attempts + ended::int) no ORDER BY outbox_id, no;
INSERT INTO outbox.dead (outbox_id, queue, died_at) SELECT outbox_id, queue, created_at FROM fixture WHERE ended AND outcome = 'FAILED';
INSERT INTO m10_recovery.event_ids (outbox_id) SELECT outbox_id FROM fixture WHERE queue = 'm10' AND n % 100 <> 0 ORDER BY outbox_id;
INSERT INTO outbox.key_numbers
SELECT outbox.key_digest('payment', participant), count(*), 'payment', participant, (array_agg(outbox_id))[1] FROM fixture WHERE queue = 'payment' GROUP BY participant;

-- What is asked for: one of each.
CREATE TABLE asked AS
SELECT (SELECT outbox_id FROM fixture WHERE queue = 'payment' AND NOT ended AND NOT leased ORDER BY n LIMIT 1) AS payment,
	(SELECT array_agg(outbox_id) FROM (SELECT outbox_id FROM fixture WHERE queue = 'payment' AND NOT ended ORDER BY n LIMIT 100) f) AS payments,
	(SELECT outbox_id FROM fixture WHERE queue = 'payment' AND ended ORDER BY n LIMIT 1) AS ended_payment,
	(SELECT participant FROM fixture WHERE queue = 'payment' AND NOT ended GROUP BY 1 ORDER BY abs(count(*) - 50), 1 LIMIT 1) AS participant,
	(SELECT id FROM m10_recovery.event_ids JOIN fixture USING (outbox_id) WHERE NOT ended ORDER BY n LIMIT 1) AS event,
	(SELECT array_agg(id) FROM (SELECT id FROM m10_recovery.event_ids JOIN fixture USING (outbox_id) ORDER BY n LIMIT 100) e) AS events;
DROP TABLE fixture, numbered;

-- read_plan: runs a query three times, and says of the last: its scans (and sorts and
-- aggregates), each once, with the number of rows that were looked at and passed by, and
-- the blocks; the time is the median.
CREATE FUNCTION scans_of(node jsonb) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT CASE
			WHEN node ? 'Index Name' THEN replace(node ->> 'Node Type', ' Scan', '') || ' ' || (node ->> 'Index Name')
			WHEN node ? 'Relation Name' THEN (node ->> 'Node Type') || ' ' || (node ->> 'Relation Name')
			ELSE node ->> 'Node Type' END
	WHERE (node ->> 'Actual Loops')::numeric > 0
		AND (node ? 'Index Name' OR node ? 'Relation Name' AND node ->> 'Node Type' <> 'Bitmap Heap Scan' OR node ->> 'Node Type' ~ 'Sort|Hash Join|Merge Join')
	UNION ALL
	SELECT s FROM jsonb_array_elements(node -> 'Plans') p, scans_of(p) s
$$;
CREATE FUNCTION read_plan(query text) RETURNS TABLE (rows bigint, ms numeric, blocks bigint, scans text) LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
	times numeric[];
BEGIN
	FOR i IN 1..3 LOOP
		EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || query INTO plan;
		times := times || (plan -> 0 ->> 'Execution Time')::numeric;
	END LOOP;
	rows := plan -> 0 -> 'Plan' -> 'Actual Rows';
	ms := (SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY t) FROM unnest(times) t);
	blocks := (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
	scans := (SELECT string_agg(DISTINCT regexp_replace(s, '_p\d{8}', '_p<date>'), ', ') FROM scans_of(plan -> 0 -> 'Plan') s);
	RETURN NEXT;
END
$$;

CREATE TABLE questions (n int GENERATED ALWAYS AS IDENTITY, kind text, query text);
INSERT INTO questions (kind, query)
SELECT kind, replace(replace(replace(replace(replace(replace(query, '$payments', quote_literal(payments::text)), '$payment', quote_literal(payment::text)),
	'$ended', quote_literal(ended_payment::text)), '$participant', quote_literal(participant)), '$events', quote_literal(events::text)), '$event', event::text)
FROM asked, (VALUES
	('payment: by id', 'SELECT * FROM payment_outbox_pending WHERE outbox_id = $payment'),
	('payment: by 100 ids', 'SELECT * FROM payment_outbox_pending WHERE outbox_id = ANY ($payments::uuid[])'),
	('payment: of a participant', 'SELECT * FROM payment_outbox_pending WHERE participant_id = $participant'),
	('payment: of a participant, first', 'SELECT * FROM payment_outbox_pending WHERE participant_id = $participant ORDER BY sequence_id LIMIT 1'),
	('payment: of a participant, by number', 'SELECT * FROM payment_outbox_pending WHERE participant_id = $participant AND sequence_id BETWEEN 10 AND 20'),
	('payment: held by a worker', 'SELECT * FROM payment_outbox_pending WHERE claimed_by = ''worker 7'''),
	('payment: lost leases', 'SELECT * FROM payment_outbox_pending WHERE lease_expires_at <= now()'),
	('payment: longest due', 'SELECT outbox_id FROM payment_outbox_pending WHERE next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10'),
	('payment: longest due, unleased', 'SELECT * FROM payment_outbox_pending WHERE claimed_by IS NULL AND next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10'),
	('payment: longest due, ids first', 'SELECT * FROM payment_outbox_pending WHERE outbox_id = ANY (ARRAY(SELECT outbox_id FROM payment_outbox_pending WHERE next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10))'),
	('payment: due next', 'SELECT * FROM payment_outbox_pending WHERE next_attempt_at > now() ORDER BY next_attempt_at LIMIT 10'),
	('payment: any ten', 'SELECT * FROM payment_outbox_pending LIMIT 10'),
	('payment: update by id', 'UPDATE payment_outbox_pending SET next_attempt_at = now() WHERE outbox_id = $payment'),
	('attempts: of a payment', 'SELECT * FROM payment_outbox_attempts WHERE outbox_id = $ended ORDER BY attempt_no'),
	('attempts: of 100', 'SELECT * FROM payment_outbox_attempts WHERE outbox_id = ANY ($payments::uuid[])'),
	('attempts: terminal ones of a payment', 'SELECT count(*) FROM payment_outbox_attempts WHERE outbox_id = $ended AND state IN (''DISPATCHED'', ''FAILED'')'),
	('operational: by id', 'SELECT * FROM outbox_operational_status WHERE outbox_id = $payment'),
	('operational: of a participant', 'SELECT * FROM outbox_operational_status WHERE participant_id = $participant'),
	('operational: held by a worker', 'SELECT * FROM outbox_operational_status WHERE claimed_by = ''worker 7'''),
	('operational: longest due', 'SELECT * FROM outbox_operational_status WHERE next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10'),
	('operational: any ten', 'SELECT * FROM outbox_operational_status LIMIT 10'),
	('core operational: by id', 'SELECT * FROM outbox.operational_status WHERE outbox_id = $payment'),
	('core: longest due of a queue', 'SELECT outbox_id, next_attempt_at FROM outbox.pending WHERE queue = ''payment'' AND priority = 0 AND claimed_by IS NULL ORDER BY greatest(next_attempt_at, lease_expires_at) LIMIT 10'),
	('core operational: held by a worker', 'SELECT * FROM outbox.operational_status WHERE claimed_by = ''worker 7'''),
	('core operational: lost leases', 'SELECT * FROM outbox.operational_status WHERE lease_expires_at <= now()'),
	('m10: by id', 'SELECT * FROM m10_recovery.outbox WHERE id = $event'),
	('m10: by 100 ids', 'SELECT * FROM m10_recovery.outbox WHERE id = ANY ($events::bigint[])'),
	('m10: joined by id', 'SELECT o.* FROM m10_recovery.event_ids e JOIN m10_recovery.outbox o USING (id) WHERE e.outbox_id = (SELECT outbox_id FROM m10_recovery.event_ids WHERE id = $event)'),
	('m10: claimed by a processor', 'SELECT * FROM m10_recovery.outbox WHERE claimed_by = ''worker 7'''),
	('m10: claimed long ago', 'SELECT * FROM m10_recovery.outbox WHERE claimed_at < now() - interval ''5 minutes'''),
	('m10: longest due', 'SELECT * FROM m10_recovery.outbox WHERE process_after <= now() ORDER BY process_after LIMIT 10'),
	('m10: due, unclaimed, any ten', 'SELECT * FROM m10_recovery.outbox WHERE process_after <= now() AND claimed_by IS NULL LIMIT 10'),
	('count: payments', 'SELECT count(*) FROM payment_outbox_pending'),
	('count: payments held', 'SELECT count(*) FROM payment_outbox_pending WHERE claimed_by IS NOT NULL'),
	('count: supervisor, pending', 'SELECT pending_depth, leased_count, expired_lease_count, due_unleased_count, oldest_pending_age_seconds FROM supervisor_outbox_status'),
	('count: supervisor, dead letters', 'SELECT dlq_depth FROM supervisor_outbox_status'),
	('count: supervisor, all', 'SELECT * FROM supervisor_outbox_status'),
	('count: core status', 'SELECT * FROM outbox.status'),
	('count: a scrape', 'SELECT outbox.prometheus()'),
	('core: dead letters of a queue, ten', 'SELECT * FROM outbox.dead_letters WHERE queue = ''payment'' LIMIT 10'),
	('count: sequences', 'SELECT * FROM participant_outbox_sequences'),
	('count: events not done', 'SELECT count(*) FROM m10_recovery.outbox WHERE process_after IS NOT NULL'),
	('count: events held', 'SELECT count(*) FROM m10_recovery.outbox WHERE claimed_by IS NOT NULL')) q(kind, query);
