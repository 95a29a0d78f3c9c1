--
-- outbox_m10: the plans of questions to its view, on 10,000 events that are not done, 10,000
-- that are, and as many other messages. What is asked for by id or by claim is found by
-- indexes, without reading pending, messages or attempts whole.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
-- As a restore does: without dated partitions.
SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
CREATE EXTENSION outbox_m10 CASCADE;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers
\set helpers :testdir /sql/plans.inc
\i :helpers

SELECT count(m10_recovery.publish_outbox('a', n::text, 'event', '1')) FROM generate_series(1, 20000) n;
SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg('{"event_type": "e", "payload": 1}'::jsonb) FROM generate_series(1, 20000)));
SELECT count(m10_recovery.complete_outbox_event(id, 'p', true)) FROM m10_recovery.claim_outbox_events('p', 10000);
SELECT count(m10_recovery.complete_outbox_event(id, 'p', false)) FROM m10_recovery.claim_outbox_events('p', 1000);
SELECT count(*) FROM m10_recovery.claim_outbox_events('p', 50);
VACUUM ANALYZE outbox.pending, outbox.messages_default, outbox.attempts_default, m10_recovery.event_ids;
SELECT s AS query, t.scans(s) AS scans FROM (VALUES
	(1, $$SELECT * FROM m10_recovery.outbox WHERE id = 17$$),
	(2, $$SELECT * FROM m10_recovery.outbox WHERE id = ANY ('{1, 5000, 15000}')$$),
	(3, $$SELECT processed_at, retry_count FROM m10_recovery.outbox WHERE id = 17$$),
	(4, $$SELECT o.* FROM m10_recovery.outbox o JOIN (VALUES (1::bigint), (15000)) v(id) USING (id)$$),
	(5, $$SELECT * FROM m10_recovery.outbox WHERE claimed_by = 'p'$$),
	(6, $$SELECT * FROM m10_recovery.outbox WHERE claimed_at < now() - interval '5 minutes'$$),
	(7, $$SELECT count(*) FROM m10_recovery.outbox WHERE claimed_by IS NOT NULL$$)) v(n, s) ORDER BY n;
-- By process_after: all that is pending, by an index where the tables are large (here: made to).
SET enable_seqscan = off;
SELECT s AS query, t.scans(s) AS scans FROM (VALUES
	(1, $$SELECT * FROM m10_recovery.outbox WHERE process_after <= now() ORDER BY process_after LIMIT 10$$),
	(2, $$SELECT count(*) FROM m10_recovery.outbox WHERE process_after IS NOT NULL$$)) v(n, s) ORDER BY n;
RESET enable_seqscan;

SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
DROP EXTENSION outbox CASCADE;
