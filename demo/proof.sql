-- What the demo claims, each as a query that counts what speaks against it. Also
-- a run that did nothing speaks against it.
--
-- delivered: what the receiver holds, copied here, with the order of its arrival. held: the
-- messages on which the killed workers held a lease, and their tokens.
CREATE TEMP VIEW event AS
	SELECT event_id, r.*
	FROM delivered, jsonb_to_record(payload) AS r(history_id bigint, tid int, bid int, aid int, delta int)
	WHERE event_type = 'history';
-- An account is locked from its change to the commit: its history rows have the order of the commits.
CREATE TEMP VIEW balance AS
	SELECT event_id, arrival, r.*,
		lag(r.history_id) OVER account AS history_before, lag(r.balance, 1, 0) OVER account AS balance_before
	FROM delivered, jsonb_to_record(payload) AS r(history_id bigint, aid int, delta int, balance int)
	WHERE event_type = 'balance'
	WINDOW account AS (PARTITION BY r.aid ORDER BY arrival);
-- Behind another lost lease of its account it need not be repaired: the repair of that one takes it, too.
CREATE TEMP VIEW lost AS
	SELECT h.*,
		(SELECT count(*) FROM outbox.attempts a
			WHERE a.outbox_id = h.outbox_id AND a.lease_token = h.lease_token
				AND a.state = 'ZOMBIE_REQUEUE' AND a.worker_id = h.claimed_by) AS repairs,
		EXISTS (SELECT FROM held o JOIN outbox.messages om USING (outbox_id)
			WHERE o.claimed_by = h.claimed_by AND om.queue = m.queue AND om.partition_key = m.partition_key
				AND om.sequence_id < m.sequence_id) AS behind
	FROM held h JOIN outbox.messages m USING (outbox_id);

SELECT 'transactions were committed, and some rolled back after their enqueue' AS claim,
	((SELECT count(*) = 0 FROM pgbench_history)
		OR (SELECT max(history_id) <= count(*) FROM pgbench_history))::int AS against
UNION ALL
SELECT 'every history row has exactly one delivered event, and every event its row',
	(SELECT count(*)
		FROM pgbench_history h FULL JOIN event e USING (history_id)
		WHERE (h.tid, h.bid, h.aid, h.delta) IS DISTINCT FROM (e.tid, e.bid, e.aid, e.delta))
	+ (SELECT count(*) - count(DISTINCT history_id) FROM event)
UNION ALL
SELECT 'balances of the branches, rebuilt from the events, are those of the bank',
	(SELECT count(*)
		FROM pgbench_branches b
		LEFT JOIN (SELECT bid, sum(delta) AS balance FROM event GROUP BY bid) e USING (bid)
		WHERE b.bbalance <> coalesce(e.balance, 0))
UNION ALL
SELECT 'the same holds for the tellers',
	(SELECT count(*)
		FROM pgbench_tellers t
		LEFT JOIN (SELECT tid, sum(delta) AS balance FROM event GROUP BY tid) e USING (tid)
		WHERE t.tbalance <> coalesce(e.balance, 0))
UNION ALL
SELECT 'and of the accounts',
	(SELECT count(*)
		FROM pgbench_accounts a
		LEFT JOIN (SELECT aid, sum(delta) AS balance FROM event GROUP BY aid) e USING (aid)
		WHERE a.abalance <> coalesce(e.balance, 0))
UNION ALL
SELECT 'accounts have several events in the ordered queue, and killed workers held some of them',
	((SELECT count(*) < 3 * count(DISTINCT aid) FROM balance)
		OR (SELECT count(*) = 0 FROM held JOIN outbox.messages USING (outbox_id) WHERE queue = 'accounts'))::int
UNION ALL
SELECT 'the events of each account arrived in the order in which the bank committed them',
	(SELECT count(*) FROM balance WHERE history_id < history_before)
UNION ALL
SELECT 'each balance that arrived is the one before it and the change, and the last is that of the bank',
	(SELECT count(*) FROM balance WHERE balance <> balance_before + delta)
	+ (SELECT count(*)
		FROM pgbench_accounts a
		LEFT JOIN (SELECT DISTINCT ON (aid) aid, balance FROM balance ORDER BY aid, arrival DESC) b USING (aid)
		WHERE a.abalance <> coalesce(b.balance, 0))
UNION ALL
SELECT 'every message has exactly one terminal attempt, DISPATCHED, and was delivered',
	(SELECT count(*)
		FROM outbox.messages m
		FULL JOIN (SELECT outbox_id, array_agg(state) AS states
			FROM outbox.attempts WHERE state IN ('DISPATCHED', 'FAILED') GROUP BY outbox_id) a USING (outbox_id)
		FULL JOIN delivered d USING (event_id)
		WHERE a.states IS DISTINCT FROM '{DISPATCHED}' OR m.outbox_id IS NULL OR d.event_id IS NULL)
UNION ALL
SELECT 'nothing is pending', (SELECT count(*) FROM outbox.pending)
UNION ALL
SELECT 'attempt numbers have no gaps, and the terminal one is the last',
	(SELECT count(*)
		FROM (SELECT array_agg(attempt_no ORDER BY attempt_no) AS numbers, count(*) AS n,
				max(attempt_no) FILTER (WHERE state IN ('DISPATCHED', 'FAILED')) AS last
			FROM outbox.attempts GROUP BY outbox_id) a
		WHERE numbers <> ARRAY(SELECT generate_series(1, n::int)) OR last IS DISTINCT FROM n)
UNION ALL
SELECT 'each lease of a killed worker was repaired once, and another worker delivered its message',
	((SELECT count(*) = 0 FROM held))::int
	+ (SELECT count(*)
		FROM lost h
		WHERE h.repairs > 1 OR (h.repairs = 0 AND NOT h.behind)
			OR NOT EXISTS (SELECT 1 FROM outbox.attempts a
				WHERE a.outbox_id = h.outbox_id AND a.state = 'DISPATCHED' AND a.worker_id <> h.claimed_by))
UNION ALL
SELECT 'the lease of the producer that did not send was taken back by the background worker, nobody else being there',
	(SELECT count(*) <> 1 OR bool_or(recorded_by <> 'outbox worker')
		FROM outbox.attempts WHERE worker_id = 'dealer' AND state = 'ZOMBIE_REQUEUE')::int
UNION ALL
SELECT 'outbox.check() finds nothing', (SELECT count(*) FROM outbox.check());
