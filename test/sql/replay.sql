--
-- replay: a dead letter becomes a new message, once. (Two at once: isolation specs.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('q', max_attempts => 3);
SELECT created FROM outbox.enqueue('full', '{"v": [1, null]}', 'q', 'customer', 'c-1', 'key', 'once',
	'00000000-0000-4000-8000-000000000001', '{"h": 1}', 'route', 7, NULL, 9);
SELECT created FROM outbox.enqueue('bare', 'null', 'q');
SELECT outbox.cancel(t.id('full'), 'r'), outbox.cancel(t.id('bare'), 'r');
SELECT t.id('full') AS full, t.id('bare') AS bare \gset

-- The new message: an id of its own, the same event_id and contents, not the
-- idempotency key, and due now.
BEGIN;
SELECT clock_timestamp() AS before \gset
SELECT outbox.replay(:'full') AS new \gset
SELECT :'new' <> :'full' AS new_id, substr(:'new', 15, 1) AS version;
SELECT m.queue, m.event_id, m.event_type, m.aggregate_type, m.aggregate_id, m.partition_key, m.sequence_id, m.idempotency_key
FROM outbox.messages m WHERE outbox_id = :'new';
SELECT m.routing_key, m.priority, m.max_attempts, m.payload, m.headers, m.replay_of = :'full' AS replay_of,
	m.created_at BETWEEN :'before' AND clock_timestamp() AS created_now
FROM outbox.messages m WHERE outbox_id = :'new';
SELECT attempt_count, priority, max_attempts, partition_key, claimed_by, next_attempt_at BETWEEN :'before' AND clock_timestamp() AS due_now
FROM outbox.pending WHERE outbox_id = :'new';
COMMIT;
-- An event_id that was not given is kept too: it is the first message's outbox_id.
SELECT outbox.replay(:'bare', clock_timestamp() + interval '1 h') AS later \gset
SELECT event_id = :'bare' AS event_id_of_the_first, payload, replay_of = :'bare' AS replay_of FROM outbox.messages WHERE outbox_id = :'later';
SELECT message, attempts, state FROM t.pending;
-- The dead letter's own history stays as it was; it is not a dead letter any more.
SELECT * FROM t.ledger;
SELECT count(*) FROM outbox.dead_letters;
SELECT event_type, payload, headers, event_id, attempt_count FROM outbox.claim('w', queues => '{q}');

-- At most once: P7005, and the DETAIL says as what.
INSERT INTO t.known VALUES (:'new', 'the replay');
SELECT t.try(format('SELECT outbox.replay(%L)', :'full'));
-- A replay that dies is a dead letter of its own, and can be replayed in turn.
SELECT recorded FROM outbox.complete(:'new', (SELECT lease_token FROM outbox.pending WHERE outbox_id = :'new'), 'w', 'FAILED');
SELECT event_type, replay_of = :'full' AS replay_of FROM outbox.dead_letters;
SELECT outbox.replay(:'new') AS third \gset
SELECT event_id, replay_of = :'new' AS replay_of FROM outbox.messages WHERE outbox_id = :'third';
-- Rolled back: not replayed.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'again', '1', 'q') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED');
BEGIN;
SELECT outbox.replay(t.id('again')) IS NOT NULL AS replayed;
ROLLBACK;
SELECT outbox.replay(t.id('again')) IS NOT NULL AS replayed;
SELECT count(*) FROM outbox.messages WHERE event_type = 'again';

-- In a numbered queue it gets the key's next number.
SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT m, e.sequence_id FROM (VALUES ('n1'), ('n2')) v(m), LATERAL outbox.enqueue(m, '1', 'n', partition_key => 'k') e;
SELECT outbox.cancel(t.id('n1'), 'r');
SELECT outbox.replay(t.id('n1')) AS n3 \gset
SELECT sequence_id FROM outbox.messages WHERE outbox_id = :'n3';

-- P7005: no dead letter.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'sent', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'DISPATCHED');
SELECT created FROM outbox.enqueue('waiting', '1');
SELECT outbox.replay('00000000-0000-7000-8000-000000000001');
\echo :SQLSTATE
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.replay(t.id('waiting'))$$),
	($$SELECT outbox.replay(t.id('sent'))$$),
	($$SELECT outbox.replay(NULL)$$)) AS v(s);
SELECT recorded FROM outbox.enqueue_and_claim('w', 'dead', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED');
SELECT t.try($$SELECT outbox.replay(t.id('dead'), 'infinity')$$);
-- P7004: its queue is gone; it stays a dead letter.
SELECT outbox.create_queue('gone');
SELECT created FROM outbox.enqueue('orphan', '1', 'gone');
SELECT outbox.cancel(t.id('orphan'), 'r');
SELECT outbox.drop_queue('gone');
SELECT t.try($$SELECT outbox.replay(t.id('orphan'))$$);
SELECT event_type FROM outbox.dead_letters ORDER BY 1;
