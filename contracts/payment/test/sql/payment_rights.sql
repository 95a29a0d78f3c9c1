--
-- Rights at work: each role of the payment interface does its own job and nothing else.
-- (The whole matrix is in test/pgtap/payment.)
--
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/payment.inc
\i :helpers

SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_nobody, regress_outbox_ingest, regress_outbox_executor, regress_outbox_readonly, regress_outbox_auditor, regress_outbox_control;
RESET client_min_messages;
CREATE ROLE regress_outbox_nobody;
CREATE ROLE regress_outbox_ingest IN ROLE symphony_ingest;
CREATE ROLE regress_outbox_executor IN ROLE symphony_executor;
CREATE ROLE regress_outbox_readonly IN ROLE symphony_readonly;
CREATE ROLE regress_outbox_auditor IN ROLE symphony_auditor;
CREATE ROLE regress_outbox_control IN ROLE symphony_control;
SELECT t.pay('i');

CREATE FUNCTION pg_temp.all_calls(as_role text) RETURNS TABLE (what text, answer text) LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	EXECUTE 'SET LOCAL ROLE ' || as_role;
	FOR what, call IN VALUES
		('enqueue', $v$SELECT enqueue_payment_outbox('by ' || current_user, 'p', 'k', 'SEPA', '{"amount": 10, "currency": "EUR", "destination": "x"}')$v$),
		('bump', $v$SELECT bump_participant_outbox_seq('p')$v$),
		('claim', $v$SELECT claim_outbox_batch(1, 'w', 3600)$v$),
		('complete', $v$SELECT complete_outbox_attempt('00000000-0000-7000-8000-000000000000', '00000000-0000-7000-8000-000000000000', 'w', 'DISPATCHED')$v$),
		('repair', $v$SELECT repair_expired_leases(1, 'w')$v$),
		('validator', $v$SELECT payment_outbox_validator('{}', '{}', NULL)$v$),
		('SELECT pending', $v$SELECT * FROM payment_outbox_pending$v$),
		('SELECT attempts', $v$SELECT * FROM payment_outbox_attempts$v$),
		('SELECT supervisor', $v$SELECT * FROM supervisor_outbox_status$v$),
		('SELECT operational', $v$SELECT * FROM outbox_operational_status$v$),
		('SELECT sequences', $v$SELECT * FROM participant_outbox_sequences$v$),
		('INSERT pending', $v$INSERT INTO payment_outbox_pending (outbox_id) VALUES (gen_random_uuid())$v$),
		('INSERT attempts', $v$INSERT INTO payment_outbox_attempts (outbox_id, attempt_no, state) VALUES (gen_random_uuid(), 1, 'RETRYABLE')$v$),
		('UPDATE pending', $v$UPDATE payment_outbox_pending SET next_attempt_at = now()$v$),
		('UPDATE attempts', $v$UPDATE payment_outbox_attempts SET worker_id = 'w'$v$),
		('DELETE pending', $v$DELETE FROM payment_outbox_pending$v$),
		('DELETE attempts', $v$DELETE FROM payment_outbox_attempts$v$),
		('INSERT sequences', $v$INSERT INTO participant_outbox_sequences VALUES ('p', 1)$v$),
		('UPDATE sequences', $v$UPDATE participant_outbox_sequences SET next_sequence_id = 1$v$),
		('core: enqueue', $v$SELECT outbox.enqueue('e', '1')$v$),
		('core: claim', $v$SELECT outbox.claim('w', queues => '{payment}')$v$),
		('core: cancel', $v$SELECT outbox.cancel('00000000-0000-7000-8000-000000000000', 'r')$v$),
		('core: SELECT messages', $v$SELECT * FROM outbox.messages$v$),
		('core: SELECT sequences', $v$SELECT * FROM outbox.sequences$v$),
		('core: SELECT key_numbers', $v$SELECT * FROM outbox.key_numbers$v$),
		('core: INSERT messages', $v$INSERT INTO outbox.messages DEFAULT VALUES$v$),
		('core: INSERT pending', $v$INSERT INTO outbox.pending (outbox_id, queue) VALUES (gen_random_uuid(), 'payment')$v$),
		('core: INSERT attempts', $v$INSERT INTO outbox.attempts DEFAULT VALUES$v$),
		('core: UPDATE pending', $v$UPDATE outbox.pending SET priority = 0$v$),
		('core: UPDATE attempts', $v$UPDATE outbox.attempts SET worker_id = 'w'$v$),
		('core: DELETE pending', $v$DELETE FROM outbox.pending$v$),
		('core: DELETE attempts', $v$DELETE FROM outbox.attempts$v$)
	LOOP
		BEGIN
			EXECUTE call;
			answer := 'ok';
		EXCEPTION WHEN OTHERS THEN
			answer := SQLSTATE;
		END;
		RETURN NEXT;
	END LOOP;
	RESET ROLE;
END
$$;
-- '' is 42501; P7002, P7005 are the function's own answer. symphony_control is a member
-- of the core's roles, as its functions need.
CREATE FUNCTION pg_temp.matrix() RETURNS TABLE (what text, nobody text, ingest text, executor text, readonly text, auditor text, control text) LANGUAGE sql AS $$
	SELECT n.what, nullif(n.answer, '42501'), nullif(i.answer, '42501'), nullif(e.answer, '42501'), nullif(r.answer, '42501'), nullif(a.answer, '42501'), nullif(c.answer, '42501')
	FROM pg_temp.all_calls('regress_outbox_nobody') n JOIN pg_temp.all_calls('regress_outbox_ingest') i USING (what) JOIN pg_temp.all_calls('regress_outbox_executor') e USING (what)
		JOIN pg_temp.all_calls('regress_outbox_readonly') r USING (what) JOIN pg_temp.all_calls('regress_outbox_auditor') a USING (what) JOIN pg_temp.all_calls('regress_outbox_control') c USING (what)
	ORDER BY 1
$$;
GRANT USAGE ON SCHEMA t TO PUBLIC;
SELECT * FROM pg_temp.matrix();

-- The sequences stay hidden from readers, also when somebody grants everything and then
-- takes back what the contract does not give.
GRANT SELECT ON ALL TABLES IN SCHEMA public TO symphony_readonly, symphony_auditor;
REVOKE ALL ON participant_outbox_sequences FROM symphony_readonly, symphony_auditor;
SELECT what, readonly, auditor FROM pg_temp.matrix() WHERE what ~ 'SELECT';

-- A function that tells what it is given learns nothing of other queues.
SELECT created FROM outbox.enqueue('secret', '"secret"', partition_key => 'secret', aggregate_id => 'secret');
SELECT outbox.cancel(outbox_id, 'secret') FROM outbox.enqueue('secret', '"secret"', aggregate_id => 'secret');
SET ROLE regress_outbox_readonly;
CREATE FUNCTION pg_temp.tells(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	IF $1::text ~ 'secret' THEN
		RAISE NOTICE 'told: %', $1;
	END IF;
	RETURN true;
END
$$;
SELECT count(*) > 0 AS rows FROM payment_outbox_pending WHERE pg_temp.tells(participant_id) AND pg_temp.tells(payload) AND pg_temp.tells(instruction_id);
SELECT count(*) FROM payment_outbox_attempts WHERE pg_temp.tells(error_message) AND pg_temp.tells(payload);
SELECT count(*) > 0 AS rows FROM outbox_operational_status WHERE pg_temp.tells(participant_id) AND pg_temp.tells(instruction_id);
RESET ROLE;

-- Nobody's objects come before those that the functions mean.
SELECT t.pay('path', 'path');
CREATE FUNCTION t.make_interval(years int DEFAULT 0, months int DEFAULT 0, weeks int DEFAULT 0, days int DEFAULT 0, hours int DEFAULT 0, mins int DEFAULT 0, secs float8 DEFAULT 0)
RETURNS interval LANGUAGE sql AS $$ SELECT interval '1 year' $$;
SET search_path = t, public, pg_catalog;
SELECT lease_expires_at < clock_timestamp() + interval '2 hours' AS as_asked FROM claim_outbox_batch(1, 'w', 3600);
RESET search_path;

DROP FUNCTION pg_temp.tells(anyelement);
SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP EXTENSION outbox CASCADE;
DROP ROLE regress_outbox_nobody, regress_outbox_ingest, regress_outbox_executor, regress_outbox_readonly, regress_outbox_auditor, regress_outbox_control;
