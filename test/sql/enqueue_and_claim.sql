--
-- enqueue_and_claim: the row is born leased to the caller; where claim could not
-- have leased it, it is stored without a lease.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('slow', lease => '2 hours'), outbox.create_queue('n', ordering => 'numbered');

-- The lease runs from the call, for the queue's time or the time that is asked for.
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT e.*, created, lease_token AS token, lease_expires_at AS expires FROM outbox.enqueue_and_claim('w', 'one', '{"v": 1}') AS e \gset
SELECT clock_timestamp() AS after \gset
SELECT :'created' AS created, :'expires'::timestamptz BETWEEN :'before'::timestamptz + interval '30 s' AND :'after'::timestamptz + interval '30 s' AS lease_of_the_queue,
	claimed_by, claimed_at BETWEEN :'before' AND :'after' AS claimed_now, lease_token = :'token' AS token, lease_expires_at = :'expires' AS expires
FROM outbox.pending;
COMMIT;
SELECT substr(:'token', 15, 1) AS random_uuid;
SELECT created FROM outbox.enqueue_and_claim('w', 'two', '1', 'slow');
SELECT created FROM outbox.enqueue_and_claim('w', 'three', '1', 'slow', lease => '5 minutes');
SELECT t.lease('two') AS two, t.lease('three') AS three;

-- Every argument arrives where it belongs.
SELECT created, sequence_id, lease_token IS NOT NULL AS leased
FROM outbox.enqueue_and_claim('w', 'all', '[1]', 'n', 'customer', 'c-1', 'key', 'once', '00000000-0000-4000-8000-000000000001',
	'{"h": 1}', 'route', 15, 3, '1 minute');
SELECT queue, event_id, event_type, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key
FROM outbox.messages WHERE event_type = 'all';
SELECT routing_key, m.priority, m.max_attempts, payload, headers, p.priority, p.max_attempts, p.attempt_count
FROM outbox.messages m JOIN outbox.pending p USING (outbox_id) WHERE event_type = 'all';

-- Nobody else gets it while the lease lasts; the sender completes it.
SELECT * FROM outbox.claim('other', queues => '{default, n, slow}');
SELECT * FROM outbox.complete(t.id('one'), :'token', 'w', 'DISPATCHED');
SELECT message, no, state, worker_id, recorded_by FROM t.ledger;
-- The sender dies: any worker takes it, and the lost try is in the ledger.
SELECT t.expire('two');
SELECT event_type, attempt_count FROM outbox.claim('other', queues => '{slow}');
SELECT message, no, state, worker_id, error_code, recorded_by FROM t.ledger WHERE message = 'two';

-- No lease: a duplicate, also of a message that this very worker holds or that is long done.
SELECT outbox_id = t.id('all') AS the_first, sequence_id, created, lease_token, lease_expires_at
FROM outbox.enqueue_and_claim('w', 'again', '1', 'n', aggregate_id => 'c-1', partition_key => 'key', idempotency_key => 'once');
SELECT message, claimed_by, state FROM t.pending WHERE message = 'all';
-- No lease: a paused queue. The message is stored, and another sends it later.
SELECT outbox.pause('slow');
SELECT created, lease_token, lease_expires_at FROM outbox.enqueue_and_claim('w', 'paused', '1', 'slow');
SELECT message, state, claimed_by FROM t.pending WHERE message = 'paused';
SELECT outbox.resume('slow');
SELECT event_type FROM outbox.claim('other', queues => '{slow}');

-- Rolled back: no message, no lease, no number.
BEGIN;
SELECT sequence_id FROM outbox.enqueue_and_claim('w', 'gone', '1', 'n', partition_key => 'key');
ROLLBACK;
SELECT count(*) FROM outbox.messages WHERE event_type = 'gone';
SELECT next_sequence_id FROM outbox.sequences;

-- What is refused.
SELECT count(*) AS messages FROM outbox.messages \gset
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue_and_claim(NULL, 'e', '1')$$),
	($$SELECT outbox.enqueue_and_claim('', 'e', '1')$$),
	($$SELECT outbox.enqueue_and_claim('w', NULL, '1')$$),
	($$SELECT outbox.enqueue_and_claim('w', '', '1')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', NULL)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', queue => NULL)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', queue => 'nowhere')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', headers => NULL)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', headers => '1')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', priority => NULL)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', priority => 16)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', priority => -1)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', max_attempts => 0)$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', lease => '0')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', lease => '-1 s')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'e', '1', lease => '1000000 years')$$)) AS v(s);
SELECT count(*) = :messages AS nothing_written FROM outbox.messages;

-- Both roles are needed; one of them is not enough, whichever.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_a, regress_outbox_b, regress_outbox_ab;
RESET client_min_messages;
CREATE ROLE regress_outbox_a IN ROLE outbox_ingest;
CREATE ROLE regress_outbox_b IN ROLE outbox_executor;
CREATE ROLE regress_outbox_ab IN ROLE outbox_ingest, outbox_executor;
SET ROLE regress_outbox_a;
SELECT created FROM outbox.enqueue_and_claim('w', 'role', '1');
\echo :SQLSTATE
SET ROLE regress_outbox_b;
SELECT created FROM outbox.enqueue_and_claim('w', 'role', '1');
\echo :SQLSTATE
SET ROLE regress_outbox_ab;
SELECT created, lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'role', '1');
RESET ROLE;
SELECT message, claimed_by FROM t.pending WHERE message = 'role';
DROP ROLE regress_outbox_a, regress_outbox_b, regress_outbox_ab;
