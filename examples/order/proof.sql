-- What the example claims of both databases together, each as a query that counts what speaks against it. Also a run that
-- did nothing speaks against it.
--
-- It runs in the database of the order service; the schema participant was copied from the other one.
CREATE TEMP VIEW due AS	-- what a completed order takes from each book
	SELECT order_id, step, book, s.amount
	FROM shop.orders o, LATERAL (VALUES ('reserve', item, -quantity), ('charge', customer, -o.amount), ('ship', 'van', -1)) s (step, book, amount)
	WHERE status = 'completed';
CREATE TEMP VIEW did AS	-- what participants did
	SELECT status, order_id, step, book, count(*) FILTER (WHERE direction = 'forward') AS done,
		count(*) FILTER (WHERE direction = 'compensate') AS undone, sum(e.amount) AS amount
	FROM participant.effects e LEFT JOIN shop.orders USING (order_id) GROUP BY 1, 2, 3, 4;

SELECT 'orders were completed, and others failed at each of the three steps' AS claim,
	(SELECT (count(*) = 0)::int FROM shop.orders WHERE status = 'completed')
	+ (SELECT 3 - count(DISTINCT step) FROM saga.steps WHERE status = 'failed') AS against
UNION ALL
SELECT 'every order has one saga, and every saga its order; both have ended, and alike',
	(SELECT count(*) FROM shop.orders o FULL JOIN saga.instances i ON i.correlation_id = o.order_id
		WHERE o.status IS DISTINCT FROM i.status OR o.status = 'open')
	+ (SELECT count(*) - count(DISTINCT correlation_id) FROM saga.instances)
UNION ALL
SELECT 'for a completed order stock was reserved once, the customer charged once, and it was shipped once',
	(SELECT count(*) FROM due FULL JOIN (SELECT * FROM did WHERE status = 'completed') did USING (order_id, step, book)
		WHERE (due.amount, 1, 0) IS DISTINCT FROM (did.amount, done, undone))
UNION ALL
SELECT 'for a failed order what was done once was undone once, and for no order nothing was done',
	(SELECT count(*) FROM did WHERE status IS DISTINCT FROM 'completed' AND (status, amount, done, undone) IS DISTINCT FROM ('failed', 0, 1, 1))
UNION ALL
SELECT 'the participants'' books balance: what there was at first and all effects make what there is now',
	(SELECT count(*) FROM participant.books b
		WHERE balance <> opening + (SELECT coalesce(sum(amount), 0) FROM participant.effects e WHERE e.book = b.book))
UNION ALL
SELECT 'and agree with the order service: what has gone from each is the sum of the completed orders',
	(SELECT count(*) FROM participant.books b
		WHERE balance <> opening + (SELECT coalesce(sum(amount), 0) FROM due WHERE due.book = b.book))
UNION ALL
SELECT 'every command was received once by the participants, and some came again and were refused',
	(SELECT count(*) FROM (SELECT * FROM outbox.messages WHERE queue <> 'saga_internal') m FULL JOIN participant.received r USING (event_id)
		WHERE m.event_id IS NULL OR r.event_id IS NULL)
	+ (SELECT (duplicates = 0)::int FROM participant.stats)
UNION ALL
SELECT 'every command has one answer, and the order service received each once',
	(SELECT count(*) FROM participant.answers a FULL JOIN inbox.log l USING (event_id) WHERE a.event_id IS NULL OR l.event_id IS NULL)
	+ (SELECT abs((SELECT count(*) FROM participant.answers) - (SELECT count(*) FROM participant.received)));
