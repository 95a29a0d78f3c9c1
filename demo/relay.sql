-- What demo/relay claims, each as a query that counts what speaks against it. Also a run that
-- did nothing speaks against it.
--
-- seen, invoices: what the consumer has in its database, copied here. held: the messages on which
-- the killed relay held a lease.
SELECT 'orders were committed, and some rolled back after their enqueue' AS claim,
	(SELECT count(*) = 0 OR max(order_id) <= count(*) FROM orders)::int AS against
UNION ALL
SELECT 'every committed order has exactly one message, and every message its order',
	(SELECT count(*)
		FROM orders o FULL JOIN outbox.messages m ON o.order_id = (m.payload->>'order_id')::bigint
		WHERE o.order_id IS NULL OR m.outbox_id IS NULL)
	+ (SELECT count(*) - count(DISTINCT payload->>'order_id') FROM outbox.messages)
UNION ALL
SELECT 'every message arrived, and nothing else did',
	(SELECT count(*) FROM outbox.messages m FULL JOIN seen s USING (event_id) WHERE m.event_id IS NULL OR s.event_id IS NULL)
UNION ALL
SELECT 'it took effect exactly once: every order has one invoice, with its customer and amount',
	(SELECT count(*)
		FROM orders o FULL JOIN invoices i USING (order_id)
		WHERE (o.customer_id, o.amount) IS DISTINCT FROM (i.customer_id, i.amount))
	+ (SELECT count(*) - count(DISTINCT order_id) FROM invoices)
UNION ALL
SELECT 'what customers were invoiced is what they spent',
	(SELECT count(*)
		FROM customers c
		LEFT JOIN (SELECT customer_id, sum(amount) AS amount FROM invoices GROUP BY customer_id) i USING (customer_id)
		WHERE c.spent <> coalesce(i.amount, 0))
UNION ALL
SELECT 'the invoices of each customer are in the order in which the orders were committed',
	(SELECT count(*)
		FROM (SELECT order_id, lag(order_id) OVER (PARTITION BY customer_id ORDER BY invoice_id) AS before FROM invoices) i
		WHERE order_id < before)
UNION ALL
SELECT 'the ledger has exactly one terminal attempt of every message, and that is DISPATCHED',
	(SELECT count(*)
		FROM outbox.messages m
		LEFT JOIN (SELECT outbox_id, array_agg(state) AS states
			FROM outbox.attempts WHERE state IN ('DISPATCHED', 'FAILED') GROUP BY outbox_id) a USING (outbox_id)
		WHERE a.states IS DISTINCT FROM '{DISPATCHED}')
UNION ALL
SELECT 'each lease of the killed relay was taken back once, or given back with one before it of its key',
	((SELECT count(*) = 0 FROM held))::int
	+ (SELECT count(*)
		FROM (SELECT h.outbox_id,
				(SELECT count(*) FROM outbox.attempts a
					WHERE a.outbox_id = h.outbox_id AND a.lease_token = h.lease_token AND a.state = 'ZOMBIE_REQUEUE') AS repairs,
				EXISTS (SELECT FROM held o JOIN outbox.messages om USING (outbox_id)
					WHERE om.partition_key = m.partition_key AND om.sequence_id < m.sequence_id) AS behind
			FROM held h JOIN outbox.messages m USING (outbox_id)) lost
		WHERE repairs > 1 OR (repairs = 0 AND NOT behind))
UNION ALL
SELECT 'nothing is pending', (SELECT count(*) FROM outbox.pending)
UNION ALL
SELECT 'outbox.check() finds nothing', (SELECT count(*) FROM outbox.check());
