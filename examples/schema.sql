-- What the examples work on, besides the extension: the tables of a shop, a role for its producers and one for its workers.

CREATE TABLE items (name text PRIMARY KEY);
INSERT INTO items VALUES ('book'), ('lamp');

CREATE TABLE orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	-- Checked at the commit: an order of what the shop does not have fails when its message is stored already.
	item text NOT NULL REFERENCES items DEFERRABLE INITIALLY DEFERRED
);

-- Not unique: that an order is shipped once is what the workers guarantee.
CREATE TABLE shipments (order_id bigint NOT NULL REFERENCES orders);

CREATE ROLE shop LOGIN IN ROLE outbox_ingest;
GRANT SELECT ON items TO shop;
GRANT SELECT, INSERT ON orders TO shop;
CREATE ROLE shipper LOGIN IN ROLE outbox_executor;
GRANT SELECT ON orders TO shipper;
GRANT SELECT, INSERT ON shipments TO shipper;
