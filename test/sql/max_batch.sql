-- The greatest batch of one call: outbox.max_batch.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
SELECT outbox_id FROM outbox.claim('w');
SELECT boot_val, context FROM pg_settings WHERE name = 'outbox.max_batch';
SET outbox.max_batch = 2;
\set VERBOSITY default
\set SHOW_CONTEXT never
SELECT outbox.enqueue_batch('default', '[{}, {}, {}]');
\set VERBOSITY terse
-- Each function that takes many names the argument, its value and the setting.
DO $$
DECLARE
	call text;
	ids text := 'array_fill(gen_random_uuid(), ''{3}'')';
	reports text := format('outbox_ids => %s, lease_tokens => %1$s, states => array_fill(''DISPATCHED''::outbox.attempt_state, ''{3}'')', ids);
BEGIN
	FOREACH call IN ARRAY ARRAY[
		'claim(''w'', 3)', 'repair_expired_leases(3)',
		format('complete_and_claim(''w'', %s)', reports),
		format('complete_and_claim(''w'', %s, batch_size => 3)', replace(reports, '{3}', '{2}')),
		format('complete_batch(''w'', %s)', reports),
		format('renew(''w'', %s, %1$s)', ids), format('release(''w'', %s, %1$s)', ids),
		format('cancel_batch(%s, ''r'')', ids), format('replay_batch(%s)', ids),
		'cancel_many(''default'', ''r'', batch_size => 3)', 'replay_many(''default'', batch_size => 3)', 'purge(''default'', batch_size => 3)']
	LOOP
		BEGIN
			EXECUTE 'SELECT FROM outbox.' || call;
			RAISE WARNING 'not refused: %', call;
		EXCEPTION WHEN invalid_parameter_value THEN
			RAISE NOTICE '%: %', split_part(call, '(', 1), SQLERRM;
		END;
	END LOOP;
END
$$;
-- As many as it says are taken.
SELECT count(*) FROM outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 2}]');
SELECT count(*) AS claimed FROM outbox.claim('w', 2);
SELECT error FROM outbox.complete_batch('w', (SELECT array_agg(outbox_id) FROM outbox.pending), (SELECT array_agg(lease_token) FROM outbox.pending), '{DISPATCHED, DISPATCHED}');
-- Who calls the functions cannot raise it.
SET ROLE outbox_executor;
SET outbox.max_batch = 3;
RESET ROLE;
RESET outbox.max_batch;
