--
-- Coming and going: outbox_payment is made, moved, dropped and made again, and the core,
-- its queue and its messages stay; roles that may do too much are refused.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
\set VERBOSITY terse
-- It needs the core, and brings it along when asked to.
CREATE EXTENSION outbox_payment;
CREATE EXTENSION outbox_payment CASCADE;
SELECT extname, extrelocatable, nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname LIKE 'outbox%' ORDER BY 1;
SELECT sequence_id FROM enqueue_payment_outbox('i1', 'p', 'k', 'SEPA', '{"amount": 10, "currency": "EUR", "destination": "x"}');
SELECT instruction_id FROM claim_outbox_batch(1, 'w', 3600);

-- It moves: everything works in the new schema, under search_path or not, and so does the
-- validator, which the queue knows by name.
CREATE SCHEMA "Pay ments";
ALTER EXTENSION outbox_payment SET SCHEMA "Pay ments";
SELECT validator FROM outbox.queues WHERE queue = 'payment';
SELECT sequence_id FROM "Pay ments".enqueue_payment_outbox('i2', 'p', 'k', 'SEPA', '{"amount": 10, "currency": "EUR", "destination": "x"}');
SELECT "Pay ments".enqueue_payment_outbox('i3', 'p', 'k', 'SEPA', '{"amount": 0, "currency": "EUR", "destination": "x"}');
SELECT "Pay ments".bump_participant_outbox_seq('p');
SELECT c.attempt_no FROM "Pay ments".payment_outbox_pending p, "Pay ments".complete_outbox_attempt(outbox_id, lease_token, 'w', 'DISPATCHED') c WHERE claimed_by = 'w';
SELECT instruction_id FROM "Pay ments".claim_outbox_batch(1, 'w', 3600);
UPDATE "Pay ments".payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 second';
SELECT attempt_no FROM "Pay ments".repair_expired_leases(1, 'w');
UPDATE "Pay ments".payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour';
INSERT INTO "Pay ments".payment_outbox_attempts (outbox_id, attempt_no, state) SELECT outbox_id, 2, 'RETRYABLE' FROM outbox.pending RETURNING instruction_id, attempt_no, state;
DELETE FROM "Pay ments".payment_outbox_attempts;
SELECT instruction_id, attempt_no, state FROM "Pay ments".payment_outbox_attempts ORDER BY 1, 2;
SELECT pending_depth, dispatched_count, retryable_count, zombie_requeue_count FROM "Pay ments".supervisor_outbox_status;
SELECT instruction_id, last_attempt_no FROM "Pay ments".outbox_operational_status;
TABLE "Pay ments".participant_outbox_sequences;
ALTER SCHEMA "Pay ments" RENAME TO payments;
SELECT validator FROM outbox.queues WHERE queue = 'payment';
SELECT sequence_id FROM payments.enqueue_payment_outbox('i4', 'p', 'k', 'SEPA', '{"amount": 10, "currency": "EUR", "destination": "x"}');
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
-- A validator that somebody chose is left alone, none too.
CREATE FUNCTION public.own_validator(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS 'SELECT NULL';
SELECT outbox.alter_queue('payment', validator => 'public.own_validator');
ALTER SCHEMA payments RENAME TO payments2;
SELECT validator FROM outbox.queues WHERE queue = 'payment';
SELECT outbox.alter_queue('payment', validator => '');
ALTER EXTENSION outbox_payment SET SCHEMA public;
SELECT validator FROM outbox.queues WHERE queue = 'payment';
SELECT outbox.alter_queue('payment', validator => 'public.payment_outbox_validator', lease => '77 seconds', max_attempts => 7);

-- Dropped: nothing of it is left but the queue with its settings and messages.
DROP EXTENSION outbox_payment;
SELECT proname FROM pg_proc WHERE proname ~ 'payment|participant|claim_outbox_batch|complete_outbox_attempt' AND pronamespace <> 'outbox'::regnamespace;
SELECT relname FROM pg_class WHERE relname ~ 'payment|participant|supervisor|outbox_operational';
SELECT typname FROM pg_type WHERE typname = 'outbox_attempt_state';
SELECT evtname FROM pg_event_trigger;
SELECT queue, ordering, lease, max_attempts FROM outbox.queues WHERE queue = 'payment';
SELECT aggregate_id, count(p.outbox_id) AS pending, count(a.outbox_id) AS attempts
FROM outbox.messages m LEFT JOIN outbox.pending p USING (outbox_id) LEFT JOIN outbox.attempts a USING (outbox_id) GROUP BY 1 ORDER BY 1;
-- Workers of the core go on; what would come in unexamined does not, as check() says.
SELECT aggregate_id FROM outbox.claim('core', 1, queues => '{payment}');
SELECT outbox.enqueue('payment', '{}', 'payment');
SELECT object, problem FROM outbox.check() WHERE severity = 'error';

-- Made again, elsewhere: the queue keeps its settings and gets the validator that is there
-- now; keys and numbers go on.
CREATE SCHEMA elsewhere;
CREATE EXTENSION outbox_payment SCHEMA elsewhere;
SELECT queue, ordering, lease, max_attempts, validator FROM outbox.queues WHERE queue = 'payment';
SELECT sequence_id FROM elsewhere.enqueue_payment_outbox('i2', 'p', 'k', 'SEPA', '{"amount": 10, "currency": "EUR", "destination": "x"}');
SELECT sequence_id FROM elsewhere.enqueue_payment_outbox('i5', 'p', 'k', 'SEPA', '{"amount": 10, "currency": "EUR", "destination": "x"}');
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
-- A validator that works is kept; one that is gone is not.
DROP EXTENSION outbox_payment;
SELECT outbox.alter_queue('payment', validator => 'public.own_validator');
CREATE EXTENSION outbox_payment;
SELECT validator FROM outbox.queues WHERE queue = 'payment';
DROP EXTENSION outbox_payment;
DROP FUNCTION public.own_validator;
CREATE EXTENSION outbox_payment;
SELECT validator FROM outbox.queues WHERE queue = 'payment';
DROP EXTENSION outbox_payment;
-- A queue of that name that does not number cannot be its queue.
SELECT outbox.alter_queue('payment', ordering => 'none', validator => '');
CREATE EXTENSION outbox_payment;
SELECT outbox.alter_queue('payment', ordering => 'numbered');
CREATE EXTENSION outbox_payment;
-- The core cannot go without it.
DROP EXTENSION outbox;

DROP EXTENSION outbox_payment;

-- Nobody's operator in its schema comes before those that its views mean.
CREATE SCHEMA planted;
CREATE FUNCTION planted.equal(outbox.attempt_state, outbox.attempt_state) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'run by %', current_user; END $$;
CREATE OPERATOR planted.= (LEFTARG = outbox.attempt_state, RIGHTARG = outbox.attempt_state, FUNCTION = planted.equal);
CREATE EXTENSION outbox_payment SCHEMA planted;
SELECT pending_depth > 0 AS pending, dispatched_count + failed_count + retryable_count + zombie_requeue_count > 0 AS attempts FROM planted.supervisor_outbox_status;
DROP EXTENSION outbox_payment;
DROP SCHEMA planted CASCADE;

-- Refused: each role, with each right that is too much.
CREATE FUNCTION pg_temp.refused(role text, attribute text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER ROLE %I %s', role, attribute);
	CREATE EXTENSION outbox_payment;
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;
SELECT attribute, pg_temp.refused(role, attribute)
FROM unnest(ARRAY['symphony_control', 'symphony_ingest', 'symphony_executor', 'symphony_readonly', 'symphony_auditor']) role,
	unnest(ARRAY['LOGIN', 'SUPERUSER', 'CREATEROLE', 'BYPASSRLS']) attribute;
SELECT pg_temp.refused('symphony_control', 'CREATEDB') AS harmless;
ALTER ROLE symphony_control NOCREATEDB;

DROP EXTENSION outbox CASCADE;
DROP SCHEMA payments2, elsewhere;
