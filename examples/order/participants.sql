-- The database of the participants: a warehouse, payments and a van. They have books, which an order takes from and
-- which a compensation gives back to. A command is received, takes effect and is answered in one transaction. That it
-- takes effect once is up to the inbox alone: nothing else here would notice that it came twice.

CREATE EXTENSION outbox;
CREATE EXTENSION outbox_inbox;
SELECT outbox.create_queue('answers', lease => '5 s');
SELECT inbox.set_window('participants', '7 days');

CREATE SCHEMA participant AUTHORIZATION participant;
SET ROLE participant;

CREATE TABLE participant.books (
	book text PRIMARY KEY,
	opening int NOT NULL,
	balance int NOT NULL CHECK (balance >= 0)
);
CREATE TABLE participant.effects (
	order_id uuid NOT NULL,
	step text NOT NULL,
	direction text NOT NULL,
	book text NOT NULL REFERENCES participant.books,
	amount int NOT NULL
);
CREATE INDEX ON participant.effects (order_id);

-- The last item is sold out, the last customer has no money, and the van has room for 40 parcels.
INSERT INTO participant.books
	SELECT book, opening, opening FROM (
		SELECT format('item %s', n), CASE n WHEN 5 THEN 0 ELSE 100 END FROM generate_series(1, 5) n
		UNION ALL SELECT format('customer %s', n), CASE n WHEN 10 THEN 0 ELSE 600 END FROM generate_series(1, 10) n
		UNION ALL SELECT 'van', 40) b (book, opening);

-- Takes from a book, or says why not. If the compensation came first, the step must not be done any more.
CREATE FUNCTION participant.take(order_id uuid, step text, book text, amount int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM participant.effects e WHERE e.order_id = take.order_id AND e.step = take.step AND e.direction = 'compensate') THEN
		RETURN 'it was given up';
	END IF;
	UPDATE participant.books b SET balance = b.balance - take.amount WHERE b.book = take.book AND b.balance >= take.amount;
	IF NOT FOUND THEN
		RETURN format('not enough left of "%s"', book);
	END IF;
	INSERT INTO participant.effects VALUES (order_id, step, 'forward', book, -amount);
	RETURN NULL;
END
$$;

-- Gives back what the step took: nothing, if it was not done.
CREATE FUNCTION participant.give_back(order_id uuid, step text, book text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	taken int;
BEGIN
	SELECT -coalesce(sum(e.amount), 0) INTO taken FROM participant.effects e WHERE e.order_id = give_back.order_id AND e.step = give_back.step;
	UPDATE participant.books b SET balance = b.balance + taken WHERE b.book = give_back.book;
	INSERT INTO participant.effects VALUES (order_id, step, 'compensate', book, taken);
END
$$;

-- Returns the answer, already leased to the worker, who sends it after the commit; no row if there is none to send.
CREATE FUNCTION participant.take_command(worker text, command_id uuid, command text, about jsonb, body jsonb)
RETURNS TABLE (outbox_id uuid, event_id uuid, lease_token uuid, payload jsonb) LANGUAGE plpgsql AS $$
DECLARE
	placed CONSTANT jsonb := body -> 'state';
	order_id CONSTANT uuid := placed ->> 'order_id';
	step CONSTANT text := about ->> 'step';
	needed CONSTANT text := CASE step WHEN 'reserve' THEN placed ->> 'item' WHEN 'charge' THEN placed ->> 'customer' WHEN 'ship' THEN 'van' END;
	amount CONSTANT int := CASE step WHEN 'reserve' THEN placed ->> 'quantity' WHEN 'charge' THEN placed ->> 'amount' WHEN 'ship' THEN '1' END;
	error text;
	answer jsonb;
BEGIN
	IF NOT inbox.receive('participants', command_id, 'orders', command) THEN
		RETURN;
	END IF;
	PERFORM FROM participant.books b WHERE b.book = needed FOR UPDATE;	-- a step and its compensation take turns
	IF about ->> 'direction' = 'forward' THEN
		error := participant.take(order_id, step, needed, amount);
	ELSE
		PERFORM participant.give_back(order_id, step, needed);
	END IF;
	answer := about || jsonb_build_object('done', error IS NULL, 'error', error);
	RETURN QUERY SELECT e.outbox_id, e.outbox_id, e.lease_token, answer
		FROM outbox.enqueue_and_claim(worker, 'order.answer', answer, 'answers') e WHERE e.lease_token IS NOT NULL;
END
$$;
