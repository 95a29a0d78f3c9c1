--
-- The validator of payments: what it refuses and how it says so, to whoever enqueues;
-- every code of ISO 4217's list; stricter rules for a rail.
--
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/payment.inc
\i :helpers

-- In the producer's face, with the reason; and nothing was written, no number used up.
SELECT t.try($$SELECT t.pay('i', payload => '{"amount": 0, "currency": "EUR", "destination": "x"}')$$);
SELECT t.try($$SELECT outbox.enqueue('payment', '{"amount": 1, "currency": "EURO", "destination": "x"}', 'payment', partition_key => 'p')$$);
SELECT t.try($$SELECT outbox.enqueue_batch('payment', '[{"event_type": "payment", "payload": {"amount": 1, "currency": "EUR", "destination": "x"}}, {"event_type": "payment", "payload": {}}]')$$);
SELECT count(*) FROM outbox.messages;
SELECT t.pay('i');

SELECT payload, payment_outbox_validator(payload, '{}', NULL) FROM unnest(ARRAY[
	'{"amount": 10, "currency": "EUR", "destination": "DE02"}',
	'{"amount": 0.01, "currency": "JPY", "destination": {"iban": "DE02"}, "more": [1, 2]}',
	'{"amount": 1e30, "currency": "USD", "destination": " x"}',
	'[]', '1', '"EUR"', 'null', '{}',
	'{"currency": "EUR", "destination": "x"}',
	'{"amount": null, "currency": "EUR", "destination": "x"}',
	'{"amount": "10", "currency": "EUR", "destination": "x"}',
	'{"amount": true, "currency": "EUR", "destination": "x"}',
	'{"amount": [10], "currency": "EUR", "destination": "x"}',
	'{"amount": 0, "currency": "EUR", "destination": "x"}',
	'{"amount": 0.00, "currency": "EUR", "destination": "x"}',
	'{"amount": -0.01, "currency": "EUR", "destination": "x"}',
	'{"amount": -1e60, "currency": "EUR", "destination": "x"}',
	'{"amount": 10, "destination": "x"}',
	'{"amount": 10, "currency": null, "destination": "x"}',
	'{"amount": 10, "currency": 978, "destination": "x"}',
	'{"amount": 10, "currency": "", "destination": "x"}',
	'{"amount": 10, "currency": "eur", "destination": "x"}',
	'{"amount": 10, "currency": "Eur", "destination": "x"}',
	'{"amount": 10, "currency": " EUR", "destination": "x"}',
	'{"amount": 10, "currency": "EUR ", "destination": "x"}',
	'{"amount": 10, "currency": "EUR\n", "destination": "x"}',
	'{"amount": 10, "currency": "EU", "destination": "x"}',
	'{"amount": 10, "currency": "EURO", "destination": "x"}',
	'{"amount": 10, "currency": "978", "destination": "x"}',
	'{"amount": 10, "currency": "\u00c4UR", "destination": "x"}',
	'{"amount": 10, "currency": "\u0395UR", "destination": "x"}',
	'{"amount": 10, "currency": "this is what somebody wrote in place of a currency", "destination": "x"}',
	'{"amount": 10, "currency": "ABC", "destination": "x"}',
	'{"amount": 10, "currency": "DEM", "destination": "x"}',
	'{"amount": 10, "currency": "EUR"}',
	'{"amount": 10, "currency": "EUR", "destination": null}',
	'{"amount": 10, "currency": "EUR", "destination": 17}',
	'{"amount": 10, "currency": "EUR", "destination": ["x"]}',
	'{"amount": 10, "currency": "EUR", "destination": ""}',
	'{"amount": 10, "currency": "EUR", "destination": " \t\n"}',
	'{"amount": 10, "currency": "EUR", "destination": {}}']::jsonb[]) payload;

-- All of 26 * 26 * 26: the codes that are known, and those that changed last.
CREATE TABLE t.codes AS
	SELECT code FROM (SELECT chr(a) || chr(b) || chr(c) AS code FROM generate_series(65, 90) a, generate_series(65, 90) b, generate_series(65, 90) c) x
	WHERE payment_outbox_validator(jsonb_build_object('amount', 1, 'currency', code, 'destination', 'x'), '{}', NULL) IS NULL;
SELECT count(*) FROM t.codes;
SELECT string_agg(code, ' ' ORDER BY code COLLATE "C") AS codes FROM t.codes GROUP BY left(code, 1) ORDER BY left(code, 1) COLLATE "C";
SELECT code, code IN (SELECT c.code FROM t.codes c) AS known
FROM unnest(ARRAY['XAD', 'XCG', 'ZWG', 'SLE', 'VED', 'XTS', 'XXX', 'XAU', 'ANG', 'BGN', 'CUC', 'HRK', 'SLL', 'ZWL', 'VEF']) code;

-- Stricter rules for a rail: a function that calls this one. It runs as its owner, who
-- therefore needs EXECUTE.
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS rules CASCADE;
DROP ROLE IF EXISTS regress_outbox_ruler;
RESET client_min_messages;
CREATE ROLE regress_outbox_ruler;
CREATE SCHEMA rules AUTHORIZATION regress_outbox_ruler;
GRANT EXECUTE ON FUNCTION payment_outbox_validator(jsonb, jsonb, text) TO regress_outbox_ruler;
SET ROLE regress_outbox_ruler;
CREATE FUNCTION rules.payment(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql
BEGIN ATOMIC
	SELECT coalesce(payment_outbox_validator(payload, headers, routing_key),
		CASE WHEN routing_key = 'SEPA' AND payload ->> 'currency' <> 'EUR' THEN 'SEPA carries EUR only' END);
END;
RESET ROLE;
SELECT outbox.alter_queue('payment', validator => 'rules.payment');
SELECT t.try($$SELECT t.pay('usd', rail => 'SEPA', payload => '{"amount": 1, "currency": "USD", "destination": "x"}')$$);
SELECT t.try($$SELECT t.pay('usd', rail => 'SEPA', payload => '{"amount": 0, "currency": "USD", "destination": "x"}')$$);
SELECT t.pay('usd', rail => 'SWIFT', payload => '{"amount": 1, "currency": "USD", "destination": "x"}'), t.pay('eur', rail => 'SEPA');
SELECT outbox.alter_queue('payment', validator => 'public.payment_outbox_validator');

SET client_min_messages = warning;
DROP SCHEMA t, rules CASCADE;
REVOKE EXECUTE ON FUNCTION payment_outbox_validator(jsonb, jsonb, text) FROM regress_outbox_ruler;
DROP ROLE regress_outbox_ruler;
DROP EXTENSION outbox CASCADE;
