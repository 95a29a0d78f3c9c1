-- pgbench: a customer orders something, and the message that says so is enqueued in the same
-- transaction. The customer's row stays locked to the commit, so that order_id is the order
-- of the commits of that customer. One in fifty is rolled back: of these nothing may remain.
\set customer_id random(1, 100)
\set amount random(1, 1000)
\set fate random(1, 50)
BEGIN;
UPDATE customers SET spent = spent + :amount WHERE customer_id = :customer_id;
INSERT INTO orders (customer_id, amount) VALUES (:customer_id, :amount) RETURNING order_id \gset
SELECT outbox_id FROM outbox.enqueue('order.placed',
	jsonb_build_object('order_id', :order_id, 'customer_id', :customer_id, 'amount', :amount),
	queue => 'orders', aggregate_type => 'order', aggregate_id => CAST(:order_id AS text), partition_key => CAST(:customer_id AS text));
\if :fate > 1
COMMIT;
\else
ROLLBACK;
\endif
