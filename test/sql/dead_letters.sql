--
-- queues.dead_letter_queue: which queues may be named; each way in which a message dies tells of it once, in the
-- same transaction, and says what is needed; what a notice is refused by; what becomes of it.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- Naming one: it exists, is another, has none itself, and no queue names the one that names it. The empty string is none.
SELECT outbox.create_queue('told');
SELECT outbox.create_queue('q', dead_letter_queue => 'told', max_attempts => 2, repair_delay => '0', backoff_base => '0', max_releases => 0);
SELECT outbox.create_queue('plain', dead_letter_queue => '');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.create_queue('x', dead_letter_queue => 'nowhere')$$),
	($$SELECT outbox.create_queue('x', dead_letter_queue => 'x')$$),
	($$SELECT outbox.create_queue('x', dead_letter_queue => 'q')$$),
	($$SELECT outbox.alter_queue('plain', dead_letter_queue => 'nowhere')$$),
	($$SELECT outbox.alter_queue('plain', dead_letter_queue => 'plain')$$),
	($$SELECT outbox.alter_queue('plain', dead_letter_queue => 'q')$$),
	($$SELECT outbox.alter_queue('told', dead_letter_queue => 'plain')$$),
	($$SELECT outbox.alter_queue('nowhere', dead_letter_queue => 'told')$$),
	($$UPDATE outbox.queues SET dead_letter_queue = ''$$),
	($$UPDATE outbox.queues SET dead_letter_queue = queue$$)) v(s);
CREATE VIEW t.queues AS SELECT queue, dead_letter_queue FROM outbox.queues ORDER BY 1;
SELECT * FROM t.queues;
SELECT outbox.alter_queue('plain', dead_letter_queue => 'told');
SELECT outbox.alter_queue('plain', lease => '1 h');
SELECT outbox.alter_queue('plain', dead_letter_queue => 'told');
SELECT * FROM t.queues;
-- A queue that is named is not dropped; one that names is.
SELECT t.try($$SELECT outbox.drop_queue('told')$$);
SELECT outbox.drop_queue('plain');
SELECT outbox.create_queue('plain');
SELECT outbox.alter_queue('q', dead_letter_queue => '');
BEGIN;
SELECT outbox.drop_queue('told');
ROLLBACK;
SELECT outbox.alter_queue('q', dead_letter_queue => 'told');
SELECT count(*) FROM outbox.check() WHERE severity = 'error';

-- What was told since the last look; each of it once, beside the ledger.
CREATE TABLE t.seen (outbox_id uuid);
CREATE FUNCTION t.told() RETURNS TABLE (event_type text, aggregate text, attempts text, error_code text, error_message text, headers jsonb, as_in_ledger boolean)
LANGUAGE sql AS $$
	WITH new AS (
		INSERT INTO t.seen SELECT outbox_id FROM outbox.messages m
			WHERE m.event_type = 'outbox.dead_letter' AND NOT EXISTS (SELECT FROM t.seen s WHERE s.outbox_id = m.outbox_id)
		RETURNING outbox_id)
	SELECT n.payload->>'event_type', concat_ws(' ', n.payload->>'aggregate_type', n.payload->>'aggregate_id'), n.payload->>'attempts',
		n.payload->>'error_code', n.payload->>'error_message', n.headers,
		(n.payload->>'queue', n.payload->>'event_id', n.idempotency_key, n.payload->'attempts', n.payload->>'error_code', n.payload->>'error_message')
			IS NOT DISTINCT FROM (d.queue, d.event_id::text, d.outbox_id::text, to_jsonb(a.attempt_no), a.error_code, a.error_message) AND n.queue = 'told'
			AND n.partition_key IS NULL
	FROM new JOIN outbox.messages n USING (outbox_id)
	LEFT JOIN outbox.messages d ON d.outbox_id = (n.payload->>'outbox_id')::uuid
	LEFT JOIN outbox.attempts a ON a.outbox_id = d.outbox_id AND a.state = 'FAILED'
	ORDER BY n.payload->>'event_type' COLLATE "C", 2
$$;
CREATE FUNCTION t.put(VARIADIC types text[]) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM unnest(types) n, outbox.enqueue(n, '1', 'q', aggregate_type => 'order', aggregate_id => n, headers => jsonb_build_object('traceparent', 'of ' || n)) e
$$;
CREATE FUNCTION t.claim(worker text = 'w') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(event_type, ' ' ORDER BY event_type COLLATE "C") FROM outbox.claim(worker, 100, queues => '{q}')
$$;

-- complete: FAILED, and RETRYABLE at the ceiling; DISPATCHED and RETRYABLE below it tell nothing.
SELECT t.put('done', 'failed', 'tired');
SELECT t.claim();
SELECT recorded FROM outbox.complete(t.id('done'), t.token('done'), 'w', 'DISPATCHED');
SELECT recorded FROM outbox.complete(t.id('tired'), t.token('tired'), 'w', 'RETRYABLE');
SELECT count(*) FROM t.told();
SELECT t.claim();
SELECT recorded FROM outbox.complete(t.id('tired'), t.token('tired'), 'w', 'RETRYABLE', error_message => 'again');
SELECT recorded FROM outbox.complete(t.id('failed'), t.token('failed'), 'w', 'FAILED', error_code => 'E1', error_message => 'no "such" \thing');
SELECT * FROM t.told();

-- complete_batch, complete_and_claim.
SELECT t.put('b1', 'b2', 'b3', 'b4');
SELECT t.claim();
SELECT error, recorded FROM (SELECT array_agg(t.id(n) ORDER BY n) AS ids, array_agg(t.token(n) ORDER BY n) AS tokens FROM unnest('{b1, b2, b3}'::text[]) n) a,
	outbox.complete_batch('w', ids, tokens, '{FAILED, DISPATCHED, FAILED}', error_codes => '{E1, NULL, E3}');
SELECT count(*) FROM outbox.complete_and_claim('w', ARRAY[t.id('b4')], ARRAY[t.token('b4')], '{FAILED}', queues => '{q, told}');
SELECT * FROM t.told();
SELECT count(*), bool_and(claimed_by = 'w') AS claimed FROM outbox.pending WHERE queue = 'told' AND claimed_by IS NOT NULL;

-- repair at the ceiling; a claim that finds an expired lease, and one that finds a ceiling lowered; break_lease.
SELECT t.put('lost', 'found');
SELECT outbox.alter_queue('q', max_attempts => 1);
SELECT t.claim();
SELECT t.expire('lost');
SELECT state FROM outbox.repair_expired_leases(queues => '{q}');
SELECT t.expire('found');
SELECT t.claim();
SELECT * FROM t.told();
SELECT outbox.alter_queue('q', max_attempts => 3);
SELECT t.put('used', 'broken');
SELECT t.claim();
SELECT recorded FROM outbox.complete(t.id('used'), t.token('used'), 'w', 'RETRYABLE');
SELECT outbox.alter_queue('q', max_attempts => 1);
SELECT t.claim();
SELECT outbox.break_lease(t.id('broken'), 'hangs');
SELECT * FROM t.told();

-- release beyond max_releases; enqueue_and_claim; cancel, of what was leased too.
SELECT t.put('released');
SELECT t.claim();
SELECT error FROM outbox.release('w', ARRAY[t.id('released')], ARRAY[t.token('released')]);
SELECT leased FROM (SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'sent', '1', 'q')) e;
SELECT recorded FROM outbox.complete(t.id('sent'), t.token('sent'), 'w', 'FAILED');
SELECT t.put('one', 'two');
SELECT outbox.cancel(t.id('one'), 'wrong');
SELECT t.claim();
SELECT outbox.cancel(t.id('two'), 'wrong, too', force => true);
SELECT * FROM t.told();

-- A handler, in maintain(). (test/t/047_handlers.pl: in a process, and the background worker.)
CREATE FUNCTION t.refuse(message outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'cannot' USING ERRCODE = 'P8000'; END $$;
SELECT t.put('handled');
SELECT outbox.alter_queue('q', handler => 't.refuse');
SELECT step, object FROM outbox.maintain() m(step, object) WHERE step LIKE '%handle%';
SELECT outbox.alter_queue('q', handler => '');
SELECT * FROM t.told();

-- Both or neither: a rollback, also to a savepoint, takes the notice along.
SELECT t.put('kept');
BEGIN;
SELECT outbox.cancel(t.id('kept'), 'no');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT outbox.cancel(t.id('kept'), 'no');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM t.told();
SELECT message, queue, state FROM t.pending WHERE message = 'kept';
-- Enqueued, dead and told in one transaction.
BEGIN;
SELECT outbox.cancel(outbox_id, 'at once') FROM outbox.enqueue('short', NULL, 'q', payload_bytes => 'bytes');
COMMIT;
SELECT outbox.cancel(t.id('kept'), 'yes');
SELECT * FROM t.told();

-- A replay is a message of its own: its death is told again, with the same event_id. A notice that dies is not told.
SELECT outbox.replay(t.id('one')) IS NOT NULL AS replayed;
SELECT outbox.cancel(outbox_id, 'still wrong') FROM outbox.pending WHERE queue = 'q';
SELECT event_type, attempts, error_message, as_in_ledger FROM t.told();
SELECT count(*), count(DISTINCT idempotency_key) AS keys, count(DISTINCT payload->>'event_id') AS events
FROM outbox.messages WHERE payload->>'event_type' = 'one';
SELECT count(outbox.cancel(outbox_id, 'read')) > 10 AS ended FROM outbox.pending WHERE queue = 'told' AND claimed_by IS NULL;
SELECT count(*) FROM t.told();

-- A producer who has used its key keeps nothing from being told.
SELECT t.put('forged');
SELECT created FROM outbox.enqueue('by hand', '1', 'told', idempotency_key => t.id('forged')::text);
SELECT outbox.cancel(t.id('forged'), 'no');
SELECT event_type, as_in_ledger FROM t.told();
SELECT idempotency_key FROM outbox.messages WHERE payload->>'event_type' = 'forged';

-- The dead letter queue may be paused, full, fair, ordered, and have a validator, which is not asked.
CREATE FUNCTION t.none(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$ SELECT 'nothing is accepted' $$;
SELECT outbox.create_queue('odd', ordering => 'fifo', paused => true, fair_by => 'partition_key', max_in_flight => 1, max_in_flight_per_key => 1, validator => 't.none', max_attempts => 1);
SELECT outbox.alter_queue('q', dead_letter_queue => 'odd');
SELECT created FROM outbox.enqueue('keyed', '1', 'q', partition_key => 'k');
SELECT created FROM outbox.enqueue('other', '1', 'q', partition_key => 'k');
SELECT outbox.cancel(t.id('keyed'), 'no'), outbox.cancel(t.id('other'), 'no');
SELECT count(*) FROM outbox.claim('w', 10, queues => '{odd}');
SELECT outbox.resume('odd');
SELECT payload->>'event_type' AS event_type, partition_key, sequence_id FROM outbox.claim('w', 1, queues => '{odd}');
SELECT m.payload->>'event_type' AS event_type, p.held_back, p.claimed_by FROM outbox.pending p JOIN outbox.messages m USING (outbox_id) WHERE p.queue = 'odd' ORDER BY 1;
SELECT count(*) FROM t.told();
SELECT outbox.alter_queue('q', dead_letter_queue => 'told');

-- What cannot be told does not end, alone among its batch. It stays as it was.
SELECT outbox.alter_queue('q', max_attempts => 1);
SELECT t.put('x1', 'x2', 'x3', 'x4', 'x5');
SELECT t.claim();
DO $$
DECLARE
	leaf text;
BEGIN
	FOR leaf IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass LOOP
		EXECUTE format('ALTER TABLE %s ADD CONSTRAINT not_it CHECK (NOT (event_type = ''outbox.dead_letter'' AND (payload->>''event_type'') IN (''x2'', ''x4''))) NOT VALID', leaf);
	END LOOP;
END $$;
SELECT error, recorded FROM (SELECT array_agg(t.id(n) ORDER BY n) AS ids, array_agg(t.token(n) ORDER BY n) AS tokens FROM unnest('{x1, x2, x3}'::text[]) n) a,
	outbox.complete_batch('w', ids, tokens, '{FAILED, FAILED, RETRYABLE}');
SELECT t.try($$SELECT outbox.complete(t.id('x2'), t.token('x2'), 'w', 'FAILED')$$);
SELECT t.try($$SELECT outbox.cancel(t.id('x2'), 'no', force => true)$$);
SELECT t.expire('x2'), t.expire('x4'), t.expire('x5');
\set VERBOSITY sqlstate
SELECT state FROM outbox.repair_expired_leases(queues => '{q}');
\set VERBOSITY default
SELECT event_type, error_code, as_in_ledger FROM t.told();
SELECT message, state FROM t.pending WHERE queue = 'q';
DO $$
DECLARE
	leaf text;
BEGIN
	FOR leaf IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass LOOP
		EXECUTE format('ALTER TABLE %s DROP CONSTRAINT not_it', leaf);
	END LOOP;
END $$;
SELECT state FROM outbox.repair_expired_leases(queues => '{q}');
SELECT event_type, error_code, as_in_ledger FROM t.told();

-- One that is gone, by hand, stops nothing: a WARNING, and check() says so. It also finds a chain.
UPDATE outbox.queues SET dead_letter_queue = 'gone' WHERE queue = 'q';
SELECT t.put('alone');
\set VERBOSITY sqlstate
SELECT outbox.cancel(t.id('alone'), 'no');
\set VERBOSITY default
SELECT count(*) FROM t.told();
UPDATE outbox.queues SET dead_letter_queue = 'odd' WHERE queue = 'q';
UPDATE outbox.queues SET dead_letter_queue = 'nobody' WHERE queue = 'odd';
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
UPDATE outbox.queues SET dead_letter_queue = NULL;
SELECT t.put('untold');
SELECT outbox.cancel(t.id('untold'), 'no');
SELECT count(*) FROM t.told();
SELECT count(*) FROM outbox.check() WHERE severity = 'error';
