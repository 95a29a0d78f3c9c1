-- The database of the order service. It stores an order and starts its saga in one transaction, and takes each
-- answer of a participant once: in the transaction that receives it the saga goes on, and the order learns how it ended.

CREATE EXTENSION outbox;
CREATE EXTENSION outbox_saga;
CREATE EXTENSION outbox_inbox;
CREATE ROLE order_service LOGIN IN ROLE outbox_saga, inbox_consumer;
CREATE ROLE participant LOGIN IN ROLE outbox_ingest, outbox_executor, inbox_consumer;

SELECT outbox.create_queue('warehouse');
SELECT outbox.create_queue('payments');
SELECT saga.define('order', '[
	{"name": "reserve", "command": "order.reserve", "queue": "warehouse", "compensation": "order.unreserve", "answer": "reply", "timeout": "1 h"},
	{"name": "charge", "command": "order.charge", "queue": "payments", "compensation": "order.refund", "answer": "reply", "timeout": "1 h"},
	{"name": "ship", "command": "order.ship", "queue": "warehouse", "compensation": "order.recall", "answer": "reply", "timeout": "1 h"}]');
SELECT inbox.set_window('orders', '7 days');

CREATE SCHEMA shop AUTHORIZATION order_service;
GRANT USAGE ON SCHEMA shop TO participant;
SET ROLE order_service;

CREATE TABLE shop.orders (
	order_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	customer text NOT NULL,
	item text NOT NULL,
	quantity int NOT NULL,
	amount int NOT NULL,
	status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'completed', 'failed'))
);

CREATE FUNCTION shop.place_order(customer text, item text, quantity int, amount int) RETURNS uuid LANGUAGE sql AS $$
	WITH placed AS (
		INSERT INTO shop.orders (customer, item, quantity, amount) VALUES (customer, item, quantity, amount) RETURNING *)
	SELECT saga.start('order', order_id, to_jsonb(placed) - 'status', idempotency_key => order_id::text) FROM placed
$$;

CREATE FUNCTION shop.take_answer(event_id uuid, answer jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF inbox.receive('orders', event_id, 'participants', 'order.answer') THEN
		PERFORM saga.reply((answer ->> 'saga_id')::uuid, answer ->> 'step', (answer ->> 'done')::boolean, error => answer ->> 'error',
			direction => answer ->> 'direction', round => (answer ->> 'round')::int);
		UPDATE shop.orders SET status = s.status FROM saga.load((answer ->> 'saga_id')::uuid) s
		WHERE order_id = s.correlation_id AND s.status IN ('completed', 'failed');
	END IF;
END
$$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA shop FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shop.take_answer TO participant;
