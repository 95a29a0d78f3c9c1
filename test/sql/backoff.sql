--
-- backoff: least(cap, base * 2^(attempt_no - 1)) for every attempt_no, without
-- overflow; jitter is a pure function of (outbox_id, attempt_no); and complete
-- schedules by it.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('two', backoff_base => '2 s', backoff_cap => '1 h');
SELECT n, outbox.backoff('default', n), outbox.backoff('two', n)
FROM (VALUES (1), (2), (3), (4), (9), (10), (11), (12), (13), (30), (31), (32), (33), (62), (63), (64), (65), (32766), (32767), (32768), (2147483647)) v(n);

-- The formula, for the numbers that numeric can do.
SELECT bool_and(outbox.backoff('two', n) = least(interval '1 h', make_interval(secs => 2 * 2 ^ (n - 1)))) AS formula FROM generate_series(1, 40) n;

-- Odd settings: a cap below the base, nothing, fractions, days and months (24 h and
-- 30 days, whatever the time zone), the longest.
SELECT outbox.create_queue('cap', backoff_base => '1 h', backoff_cap => '1 s'),
	outbox.create_queue('zero', backoff_base => '0'), outbox.create_queue('zerocap', backoff_cap => '0'),
	outbox.create_queue('micro', backoff_base => '1 microsecond', backoff_cap => '1 month'),
	outbox.create_queue('mixed', backoff_base => '1 month -29 days', backoff_cap => '1 year'),
	outbox.create_queue('long', backoff_base => '1 years', backoff_cap => '9 years');
SELECT q, n, extract(epoch FROM outbox.backoff(q, n)) AS seconds
FROM (VALUES ('cap'), ('zero'), ('zerocap'), ('micro'), ('mixed'), ('long')) v(q), (VALUES (1), (2), (3), (20), (50), (2147483647)) w(n);
SET timezone = 'Europe/Berlin';
SELECT extract(epoch FROM outbox.backoff('mixed', 1)) AS seconds;
SET timezone = 'UTC';

-- Jitter: only with an id, never above the delay nor below its share, the same each
-- time, different for different messages and attempts.
SELECT outbox.create_queue('jitter', backoff_base => '8 s', backoff_cap => '1 h', backoff_jitter => 0.5), outbox.create_queue('full', backoff_base => '8 s', backoff_jitter => 1);
SELECT outbox.backoff('jitter', 2), outbox.backoff('jitter', 2, NULL);
CREATE TABLE t.ids AS SELECT md5(g::text)::uuid AS id FROM generate_series(1, 1000) g;
SELECT min(outbox.backoff('jitter', 2, id)) >= '8 s' AS not_below, max(outbox.backoff('jitter', 2, id)) <= '16 s' AS not_above,
	min(outbox.backoff('jitter', 2, id)) < '8.5 s' AS reaches_down, max(outbox.backoff('jitter', 2, id)) > '15.5 s' AS reaches_up,
	avg(extract(epoch FROM outbox.backoff('jitter', 2, id))) BETWEEN 11 AND 13 AS even,
	count(DISTINCT outbox.backoff('jitter', 2, id)) > 990 AS spread,
	bool_and(outbox.backoff('jitter', 2, id) = outbox.backoff('jitter', 2, id)) AS pure,
	bool_or(outbox.backoff('jitter', 9, id) <> outbox.backoff('jitter', 2, id) * 128) AS by_attempt
FROM t.ids;
SELECT min(outbox.backoff('full', 1, id)) >= '0' AS not_below, max(outbox.backoff('full', 1, id)) <= '8 s' AS not_above, min(outbox.backoff('full', 1, id)) < '0.5 s' AS reaches_down FROM t.ids;
-- A new queue has a fifth, so that what failed together does not come back together; without jitter all do.
SELECT min(outbox.backoff('default', 1, id)) >= '0.8 s' AS not_below, max(outbox.backoff('default', 1, id)) <= '1 s' AS not_above,
	count(DISTINCT outbox.backoff('default', 1, id)) > 990 AS spread FROM t.ids;
SELECT outbox.create_queue('still', backoff_jitter => 0);
SELECT outbox.backoff('still', 1, id) FROM t.ids GROUP BY 1;

-- B09 (pgflow, River): a retry at any attempt number. The ledger holds the number
-- before; the delay is the backoff of the new one, jitter and all.
SELECT outbox.create_queue('b09', max_attempts => 40000, backoff_base => '2 s', backoff_cap => '1 h', backoff_jitter => 0.25);
CREATE FUNCTION t.retry_at(n int) RETURNS TABLE (attempt_no int, recorded outbox.attempt_state, as_backoff_says boolean) LANGUAGE plpgsql AS $$
DECLARE
	m record;
	before timestamptz;
BEGIN
	SELECT * INTO m FROM outbox.enqueue_and_claim('w', 'b09', '1', 'b09');
	IF n > 1 THEN
		INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (m.outbox_id, n - 1, 'RETRYABLE');
	END IF;
	before := clock_timestamp();
	RETURN QUERY SELECT c.attempt_no, c.recorded,
		c.next_attempt_at - outbox.backoff('b09', n, m.outbox_id) BETWEEN before AND clock_timestamp()
	FROM outbox.complete(m.outbox_id, m.lease_token, 'w', 'RETRYABLE') c;
END
$$;
SELECT r.* FROM (VALUES (1), (10), (30), (31), (32766), (32767), (32768), (39999), (40000)) v(n), LATERAL t.retry_at(n) r;

-- What is refused.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.backoff(NULL, 1)$$),
	($$SELECT outbox.backoff('default', NULL)$$),
	($$SELECT outbox.backoff('default', 0)$$),
	($$SELECT outbox.backoff('default', -2147483648)$$),
	($$SELECT outbox.backoff('nowhere', 1)$$)) AS v(s);

-- B10 (entropy pgq): sessions in other time zones, and a clock change, move nothing.
SELECT outbox.create_queue('z');
SET timezone = 'Asia/Kolkata';
SELECT created FROM outbox.enqueue('zone', '1', 'z');
SELECT event_type FROM outbox.claim('a', 1, '30 s', '{z}');
SELECT t.lease('zone'), lease_expires_at > clock_timestamp() AS unexpired FROM outbox.pending WHERE queue = 'z';
SET timezone = 'America/Los_Angeles';
SELECT count(*) FROM outbox.claim('b', 1, '30 s', '{z}');
SET timezone = 'UTC';
SELECT count(*) FROM outbox.repair_expired_leases();
SELECT attrelid::regclass, attname FROM pg_attribute
WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'outbox'::regnamespace)
	AND atttypid IN ('timestamp'::regtype, 'time'::regtype, 'timetz'::regtype, 'date'::regtype);
SET timezone = 'Europe/Berlin';
SELECT count(*) FROM (VALUES ('1 day'), ('24 hours'), ('365 days'), ('1 month'), ('1 year'), ('1 month -29 days')) v(d), LATERAL outbox.enqueue_and_claim('w', d, '1', lease => d::interval);
SELECT d, extract(epoch FROM t.lease(d)) / 3600 AS hours
FROM (VALUES ('1 day'), ('24 hours'), ('365 days'), ('1 month'), ('1 year'), ('1 month -29 days')) v(d);
SELECT clock_timestamp() AS before \gset
SELECT next_attempt_at BETWEEN :'before'::timestamptz + interval '8760 hours' AND clock_timestamp() + interval '8760 hours' AS days_of_24_hours
FROM outbox.complete(t.id('1 day'), t.token('1 day'), 'w', 'RETRYABLE', retry_delay => '365 days');
SET timezone = 'UTC';
